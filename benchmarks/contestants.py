"""The contestants of a race: our units, torch's layers, the sru package, matrix products as a lower limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.settings import Shape
from linnet.bench.layers import call_of
from linnet.bench.timing import Call
from linnet.run.choose import backend
from linnet.units import UNITS


class Contestant(NamedTuple):
    """`build` prepares a call, which is not timed, and returns it."""

    unit: str
    backend: str
    build: Callable[[], Call]


KERNELS = {"cpu": "cpu", "cuda": "triton"}  # the backend of each device


def ours(unit: str, shape: Shape, mode: str, device: str = "cpu") -> Contestant:
    kernel = KERNELS[device] if has_kernel(unit, device) else "reference"
    return Contestant(unit, kernel, lambda: call_of(UNITS[unit](shape.d, shape.d), shape, mode))


def reference_loop(unit: str, shape: Shape, mode: str) -> Contestant:
    return Contestant(
        unit, "reference", lambda: on_reference(call_of(UNITS[unit](shape.d, shape.d), shape, mode))
    )


def on_reference(call: Call) -> Call:
    """The same call by the loop over time."""

    def by_the_loop() -> None:
        with backend("reference"):
            call()

    return by_the_loop


def has_kernel(unit: str, device: str = "cpu") -> bool:
    try:
        with backend(KERNELS[device]), torch.device(device):
            UNITS[unit](16, 16)(torch.zeros(1, 1, 16))
    except Exception:  # the race reports the error
        return False
    return True


def torch_layer(name: str, shape: Shape, mode: str, device: str = "cpu") -> Contestant:
    """Return nn.LSTM or nn.GRU, which use cuDNN on a GPU."""
    layer = {"nn.LSTM": nn.LSTM, "nn.GRU": nn.GRU}[name]
    library = "cudnn" if device == "cuda" else "torch"
    return Contestant(name, library, lambda: call_of(layer(shape.d, shape.d), shape, mode))


def sru_package(shape: Shape, mode: str) -> Contestant:
    def build() -> Call:
        # Imported only when it is used: the package compiles its kernels at import.
        import sru

        return call_of(sru.SRU(shape.d, shape.d, num_layers=1), shape, mode)

    return Contestant("sru", "sru package", build)


def cell_step(unit: str, shape: Shape) -> Contestant:
    """Return a step of a unit's cell or of nn.LSTMCell, as in a loop that the user writes."""

    def build() -> Call:
        make: Any = nn.LSTMCell if unit == "nn.LSTMCell" else UNITS[unit].cell_class
        cell, x = make(shape.d, shape.d).eval(), torch.randn(shape.B, shape.d)
        with torch.no_grad():
            state = cell(x) if unit == "nn.LSTMCell" else cell.run_step(x)[1]

        @torch.no_grad()
        def call() -> None:
            cell(x, state)

        return call

    return Contestant(unit, "torch" if unit == "nn.LSTMCell" else "", build)


def matrices_of(unit: str) -> int:
    """Return the number of matrices of a unit's projection if input and state have the same size."""
    return len(UNITS[unit](2, 2).first_cell.input.weight) // 2


def limit(matrices: int, shape: Shape, mode: str) -> Contestant:
    """Return the matrix products that a layer with this many matrices needs at least, without allocations.

    The forward pass has one, U = X W^T; training has two more, dX = dU W and dW = dU^T X.
    """
    size = shape.L * shape.B, shape.d, matrices * shape.d
    return Contestant(f"limit of {matrices}", "torch", lambda: products(*size, training=mode == "training"))


def own_products(unit: str, shape: Shape, mode: str) -> Contestant:
    """Return the products of a unit with recurrent matrices: of all steps at once, and one at each step.

    Training has those of the forward pass, those of each step backwards, and those of the weights and of x.
    """

    def build() -> Call:
        cell, rows = UNITS[unit](shape.d, shape.d).first_cell, shape.L * shape.B
        weights = [cell.input.weight, *(getattr(cell, name).weight for name in cell.recurrence)]
        inputs, *recurrent = (weight.detach() for weight in weights)
        at_once = products(rows, inputs.shape[1], len(inputs), mode == "training")
        by_step = [step_products(shape.B, w, mode == "training") for w in recurrent]
        gradients = [products_of_gradients(rows, w) for w in recurrent] if mode == "training" else []

        def call() -> None:
            at_once()
            for _ in range(shape.L):
                for product in by_step:
                    product()
            for product in gradients:
                product()

        return call

    return Contestant(f"products of {unit}", "torch", build)


def step_products(batch: int, weight: Tensor, training: bool) -> Call:
    h, u = torch.randn(batch, weight.shape[1]), torch.empty(batch, len(weight))
    above = torch.empty_like(h)

    def call() -> None:
        torch.mm(h, weight.T, out=u)
        if training:
            torch.mm(u, weight, out=above)

    return call


def products_of_gradients(rows: int, weight: Tensor) -> Call:
    """The gradient of a recurrent matrix: one product over all steps."""
    above, h, gradient = (
        torch.randn(rows, len(weight)),
        torch.randn(rows, weight.shape[1]),
        torch.empty_like(weight),
    )
    return lambda: torch.mm(above.T, h, out=gradient)


def products(rows: int, size: int, width: int, training: bool = True) -> Call:
    x, w = torch.randn(rows, size), torch.randn(width, size)
    u, dx, dw = torch.empty(len(x), len(w)), torch.empty_like(x), torch.empty_like(w)

    def forward() -> None:
        torch.mm(x, w.T, out=u)

    def all_three() -> None:
        forward()
        torch.mm(u, w, out=dx)
        torch.mm(u.T, x, out=dw)

    return all_three if training else forward
