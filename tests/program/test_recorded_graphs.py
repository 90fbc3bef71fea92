"""What is recorded of a step that is not elementwise, and of its gradient, is what the step computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.program.graph import interpret
from linnet.program.record_step import derived_tensors, record_step
from linnet.program.trace import NotPointwise

SIZE = 6
PARAMETERS = {
    "w": (SIZE,),
    "v": (SIZE,),
    "matrix": (SIZE, SIZE),
    "square": (2, SIZE),
    "other": (SIZE, 2 * SIZE),
}
Function = Callable[..., Tensor]


def norm(x: Tensor, p: dict[str, Tensor]) -> Tensor:
    return F.layer_norm(x, (SIZE,), p["w"], p["v"])


# x, h [B, 6], parameters by name -> the new h.
STEPS: dict[str, Function] = {
    "elementwise": lambda x, h, p: torch.tanh(x + p["w"] * h),
    "a sum": lambda x, h, p: x + h.sum(-1, keepdim=True),
    "a mean and a variance": lambda x, h, p: (h - h.mean(-1, True)) / (h.var(-1, keepdim=True) + 1) + x,
    "layer norm": lambda x, h, p: norm(x + h, p),
    "norm by root mean square": lambda x, h, p: F.rms_norm(x * h, (SIZE,), p["w"]),
    "softmax": lambda x, h, p: F.softmax(x + h, -1) * p["w"],
    "log of a sum": lambda x, h, p: x - torch.logsumexp(h, -1, keepdim=True),
    "a maximum": lambda x, h, p: x * h.amax(-1, keepdim=True),
    "norms of segments": lambda x, h, p: F.normalize((x + h).view(-1, 2, 3), p=5.0, dim=-1).flatten(1),
    "an infinite norm": lambda x, h, p: (
        h / (1 + torch.linalg.vector_norm(x + h, torch.inf, -1, keepdim=True))
    ),
    "an outer product": lambda x, h, p: (x[:, :2, None] * h[:, None, 3:]).flatten(1),
    "sums of an outer product": lambda x, h, p: (
        torch.cat([m.sum(1), m.sum(2)], 1) if (m := x[:, :3, None] * h[:, None, :3]).dim() else x
    ),
    "another order": lambda x, h, p: x + torch.roll(h, 2, -1).flip(-1),
    "chosen channels": lambda x, h, p: x + h[:, [5, 0, 0, 1, 2, 3]],
    "index_select": lambda x, h, p: x + p["w"] * h.index_select(-1, torch.tensor([1, 0, 3, 2, 5, 4])),
    "cat of pieces": lambda x, h, p: torch.cat([h[:, 4:], x[:, 1:3] * 2, h[:, :2]], -1),
    "split": lambda x, h, p: torch.cat(
        [b * a.exp() for a, b in zip(x.split([2, 4], -1), h.split([2, 4], -1), strict=True)], -1
    ),
    "chunk and stack": lambda x, h, p: torch.stack((x + h).chunk(2, -1), -1).flatten(1),
    "a transposed view": lambda x, h, p: (x + h).view(-1, 2, 3).transpose(1, 2).reshape(-1, SIZE) * h,
    "every other channel": lambda x, h, p: torch.cat([h[:, ::2], x[:, 1::2]], -1),
    "padded": lambda x, h, p: x + F.pad(h[:, 1:4], (1, 2)),
    "one channel for all": lambda x, h, p: x * h[:, 2:3],
    "repeated": lambda x, h, p: x + h[:, :3].repeat(1, 2) + h[:, 3:].repeat_interleave(2, -1),
    "constants": lambda x, h, p: x * h.new_tensor([0.0, 0.5, 0.9, 0.99, 1.0, 1.0]) + h,
    "choices": lambda x, h, p: torch.where(x > h.mean(-1, True), h, -x).masked_fill(h < 0, 0.5),
    "counts": lambda x, h, p: x * (h > 0).to(h.dtype).sum(-1, keepdim=True),
    "a product": lambda x, h, p: torch.tanh(x + F.linear(h, p["matrix"], p["w"])),
    "two products": lambda x, h, p: torch.tanh(
        F.linear(torch.relu(F.linear(h, p["matrix"])) * x, p["matrix"])
    ),
    "a product of what is side by side": lambda x, h, p: (
        x + F.linear(torch.cat([h, x], -1), p["other"], p["v"])
    ),
    "a norm of a product": lambda x, h, p: x + norm(h @ p["matrix"], p),
    "what derives from parameters": lambda x, h, p: x * torch.cos(p["w"] * p["v"]) + h * p["w"].sum(),
    "a parameter that is read, and what derives from it": lambda x, h, p: (
        x * p["w"] + h * (p["w"] * p["v"]) + x * (p["w"] * p["v"]).exp()
    ),
    "a row of a parameter": lambda x, h, p: x * p["square"][0] + h * p["square"][1] + p["square"][0],
    "a matrix that is computed": lambda x, h, p: x + F.linear(h, torch.tanh(p["matrix"].T + 1)),
    "in place": lambda x, h, p: (x + h).mul_(h).sub_(x.mean(-1, True)),
    "a gradient that stops": lambda x, h, p: x * h / h.detach().abs().amax(-1, keepdim=True),
}


def step_of(function: Function) -> Any:
    def step(inputs, states, parameters):
        h = function(inputs["x"], states["h"], parameters)
        return h * 2 if h.shape[-1] == SIZE else h, {"h": h}

    return step


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.double)


def multiplied(traced: Any, known: dict[str, Tensor], matrices: list[Tensor]) -> dict[str, Tensor]:
    """All values of a step: its products are computed one after the other."""
    batch = len(known["h"])
    made = {f"made.{i}": draw(batch, len(matrix)) for i, matrix in enumerate(matrices)}
    for i, matrix in enumerate(matrices):
        made[f"made.{i}"] = F.linear(interpret(traced.forward, known | made)[f"inner.{i}"], matrix)
    return known | made


@pytest.mark.parametrize("name", STEPS)
def test_a_step_and_its_gradient(name: str):
    torch.manual_seed(1)
    step, batch = step_of(STEPS[name]), 3
    traced, derived = record_step(step, {"x": SIZE}, {"h": SIZE}, PARAMETERS)
    x, h = draw(batch, SIZE).requires_grad_(), draw(batch, SIZE).requires_grad_()
    own = {name: draw(*shape).requires_grad_() for name, shape in PARAMETERS.items()}
    y, new = step({"x": x}, {"h": h}, own)
    weights, matrices = derived_tensors(derived, own)
    flat = {name: w.detach().expand(batch, -1) for name, w in zip(traced.weights, weights, strict=True)}
    known = multiplied(traced, {"x": x.detach(), "h": h.detach(), **flat}, [m.detach() for m in matrices])
    found = interpret(traced.forward, known)
    close(found["y"].expand_as(y), y)
    close(found["new.h"].expand_as(h), new["h"])
    dy, dh = draw(*y.shape), draw(*h.shape)
    leaves = [x, h, *weights, *matrices]
    expected = torch.autograd.grad([y, new["h"]], [x, h, *own.values()], [dy, dh], allow_unused=True)
    gradients = differentiated(traced, known | {"dy": dy, "dnew.h": dh}, matrices)
    close(gradients["d.x"].expand_as(x), zero_if_none(expected[0], x))
    close(gradients["d.h"].expand_as(h), zero_if_none(expected[1], h))
    # From the weights on, torch differentiates.
    above = [gradients[f"d.{w}"].expand(batch, -1).sum(0) for w in traced.weights]
    above += [gradients[f"d.made.{i}"].T @ found[f"inner.{i}"] for i in range(len(matrices))]
    pairs = [(w, g) for w, g in zip(leaves[2:], above, strict=True) if w.requires_grad]
    if pairs:
        of_parameters = torch.autograd.grad(
            [w for w, _ in pairs], list(own.values()), [g for _, g in pairs], allow_unused=True
        )
    else:
        of_parameters = [None] * len(own)
    for ours, theirs, parameter in zip(of_parameters, expected[2:], own.values(), strict=True):
        close(zero_if_none(ours, parameter), zero_if_none(theirs, parameter))


def differentiated(traced: Any, known: dict[str, Tensor], matrices: list[Tensor]) -> dict[str, Tensor]:
    known = known | {
        f"dinner.{i}": torch.zeros(len(known["h"]), m.shape[1]).double() for i, m in enumerate(matrices)
    }
    for i, matrix in reversed(list(enumerate(matrices))):
        known[f"dinner.{i}"] = interpret(traced.backward, known)[f"d.made.{i}"] @ matrix.detach()
    return interpret(traced.backward, known)


def zero_if_none(gradient: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if gradient is None else gradient


def close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-12, atol=1e-12)


OUTSIDE = torch.ones(SIZE, dtype=torch.double)
REFUSED: dict[str, tuple[Function, str]] = {
    "sorting": (lambda x, h, p: (x + h).sort(-1).values, "aten.sort"),
    "numbers drawn": (lambda x, h, p: x + torch.rand_like(h), "draws random numbers"),
    "a choice of channels that depends on the state": (lambda x, h, p: x[:, h[0].argsort()], "aten"),
    "a product of two values": (lambda x, h, p: x + h @ (x.T @ h), "both depend on its input"),
    "a tensor from outside": (
        lambda x, h, p: x + OUTSIDE * h,
        "neither an input nor a parameter",
    ),
    "another size": (lambda x, h, p: h[:, :3], "of the shape"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_kernels_cannot_do_is_refused(name: str):
    function, reason = REFUSED[name]
    with pytest.raises(NotPointwise, match=reason):
        record_step(step_of(function), {"x": SIZE}, {"h": SIZE}, PARAMETERS)
