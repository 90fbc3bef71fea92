"""Calls of a layer whose time is measured: inference, training, and a step that continues from a state."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from linnet.bench.timing import Call


class Shape(NamedTuple):
    """L steps of B sequences; d is the input size and the hidden size."""

    L: int
    B: int
    d: int

    def __str__(self) -> str:
        return "x".join(map(str, self))

    @property
    def is_step(self) -> bool:
        return self.L == 1

    def columns(self) -> dict[str, int]:
        return self._asdict()


def check_device(device: str) -> None:
    """Raise RuntimeError if `device` is "cuda" and there is no GPU."""
    if device == "cuda" and not torch.cuda.is_available():
        raise RuntimeError(
            "there is no GPU here: torch.cuda.is_available() is False "
            f"(torch {torch.__version__}, built for CUDA {torch.version.cuda}); "
            "run this on a machine with a GPU and a torch that is built for it, or with --device cpu"
        )


def call_of(layer: nn.Module, shape: Shape, mode: str) -> Call:
    """Return the call to time: `mode` is "inference", "training" or "step"."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        x = torch.randn(shape)
    return {"inference": inference, "training": training, "step": step}[mode](layer, x)


def inference(layer: nn.Module, x: Tensor) -> Call:
    layer.eval()

    @torch.no_grad()
    def call() -> None:
        layer(x)

    return call


def step(layer: nn.Module, x: Tensor) -> Call:
    """Return a call of one step that continues from a state, as in streaming."""
    layer.eval()
    with torch.no_grad():
        _, state = layer(x)

    @torch.no_grad()
    def call() -> None:
        layer(x, state)

    return call


def training(layer: nn.Module, x: Tensor) -> Call:
    """Return a forward and backward pass, with gradients of x and of all parameters."""
    with torch.no_grad():
        above = torch.ones_like(layer(x)[0])
    x.requires_grad_()
    leaves = [x, *layer.parameters()]

    def call() -> None:
        torch.autograd.grad(layer(x)[0], leaves, above, allow_unused=True)

    return call
