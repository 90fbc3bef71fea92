"""Run a recorded model with its file's weights, and compare outputs, losses and gradients with the file's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from golden_cases import Vectors, matching, named_as_in_torch
from golden_units import Parameters, under
from torch import Tensor, nn
from torch.func import functional_call

from linnet.layers.spans import SpanLogits


def files(*patterns: str) -> Any:
    return pytest.mark.parametrize("path", matching(*patterns), ids=lambda path: path.stem)


def close(ours: Tensor, theirs: Tensor, what: str) -> None:
    """To 1e-9 of the largest value: the tolerance of the LRN files, narrower than that of the SRU files."""
    scale = theirs.abs().max().item() if theirs.numel() else 0.0
    torch.testing.assert_close(
        ours, theirs.to(ours.dtype), rtol=0, atol=1e-9 * scale + 1e-14, msg=lambda text: f"{what}: {text}"
    )


def check_gradients(loss: Tensor, leaves: Parameters, theirs: Parameters) -> None:
    found = torch.autograd.grad(
        loss, list(leaves.values()), retain_graph=True, allow_unused=True, materialize_grads=True
    )
    for key, gradient in zip(leaves, found, strict=True):
        close(gradient, theirs[key], f"gradient of {key}")


def check_loss(v: Vectors, loss: Tensor) -> None:
    """The loss and all gradients; some files leave out the "w." of a weight's name."""
    close(loss, v["loss"], "loss")
    check_gradients(loss, {key: v[key if key in v else f"w.{key}"] for key in v.gradients}, v.gradients)


def check_output(v: Vectors, out: Tensor) -> None:
    """An output, and the loss and the gradients of the sum of its products with R."""
    close(out, v["out"], "output")
    check_loss(v, (out * v["R"]).sum())


def check_logits(v: Vectors, logits: SpanLogits) -> None:
    """Theirs are about -1e30 at padding, ours -inf."""
    for ours, key in ((logits.start, "logits1"), (logits.end, "logits2")):
        real = v[key] > -1e20
        assert torch.equal(ours.isfinite(), real)
        close(ours[real], v[key][real], key)


class Calling(nn.Module):
    """Calls a function with a module, so that the module can have other parameters meanwhile."""

    def __init__(self, module: nn.Module, function: Callable[..., Any]):
        super().__init__()
        self.module, self.function = module, function

    def forward(self, *inputs: Any) -> Any:
        return self.function(self.module, *inputs)


def call(
    module: nn.Module, parameters: Parameters, *inputs: Any, function: Callable[..., Any] | None = None
) -> Any:
    """module(*inputs), or function(module, *inputs), with these parameters and no others."""
    parameters = named_as_in_torch(module, parameters)
    assert set(parameters) == {name for name, _ in module.named_parameters()}
    run = Calling(module.double(), function or nn.Module.__call__)
    return functional_call(run, under("module", parameters), inputs)
