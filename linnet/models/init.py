"""Initialisation of the parameters of a model, as in the papers. For language models, `init` is one of

    unit      cells as in their papers; embedding and output U(-scale, scale), output bias 0
              (with scale 0.1, the LRN authors' mixture of softmaxes)
    uniform   everything in U(-scale, scale), biases too (the SCRN authors)
    weights   the same, but the biases of the cells are 0 (the RAN authors, Penn Treebank and text8)
    rows      cells as in their papers; embedding and output in U(+-sqrt(3 / rows)), biases 0
              (the SRU authors, enwik8)
    xavier    cells as in their papers; embedding N(0, 1), output Xavier-normal, its bias 0 (the NRU
              authors' character model)
    normal    weights N(0, scale^2), biases and output matrices 0 (Mikolov et al. 2015, the SCRN in Lua)

Norms always start with weight 1 and bias 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

from linnet.recurrent.init import clear_

# The model's layers, and its other matrices: (embedding, output matrices, output biases).
Outer = tuple[list[Tensor], list[Tensor], list[Tensor]]


@torch.no_grad()
def initialise(model: nn.Module, layers: nn.Module, outer: Outer, init: str, scale: float) -> None:
    """Overwrite the initial values that torch and the cells have set."""
    RECIPES[init](model, layers, outer, scale)


def unit(model: nn.Module, layers: nn.Module, outer: Outer, scale: float) -> None:
    embedding, output, biases = outer
    for weight in (*embedding, *output):
        weight.uniform_(-scale, scale)
    zero(biases)


def uniform(model: nn.Module, layers: nn.Module, outer: Outer, scale: float) -> None:
    for weight in without_norms(model):
        weight.uniform_(-scale, scale)


def weights(model: nn.Module, layers: nn.Module, outer: Outer, scale: float) -> None:
    uniform(model, layers, outer, scale)
    clear_(layers)


def rows(model: nn.Module, layers: nn.Module, outer: Outer, scale: float) -> None:
    embedding, output, biases = outer
    for weight in (*embedding, *output):
        bound = math.sqrt(3 / len(weight))
        weight.uniform_(-bound, bound)
    zero(biases)


def xavier(model: nn.Module, layers: nn.Module, outer: Outer, scale: float) -> None:
    embedding, output, biases = outer
    for weight in embedding:
        weight.normal_()
    for weight in output:
        nn.init.xavier_normal_(weight)
    zero(biases)


def normal(model: nn.Module, layers: nn.Module, outer: Outer, scale: float) -> None:
    for weight in without_norms(model):
        if weight.dim() > 1:
            weight.normal_(0, scale)
        else:
            weight.zero_()
    zero(outer[1])


RECIPES: dict[str, Callable[[nn.Module, nn.Module, Outer, float], None]] = {
    recipe.__name__: recipe for recipe in (unit, uniform, weights, rows, xavier, normal)
}


@torch.no_grad()
def uniform_weights(model: nn.Module, scale: float, but: Sequence[Tensor] = ()) -> None:
    """Set weights except those in `but` to U(-scale, scale), biases to 0 (the LRN authors' classifiers)."""
    for module in model.modules():
        if isinstance(module, (nn.LayerNorm, nn.RMSNorm)):
            continue
        for name, weight in module.named_parameters(recurse=False):
            if name.startswith("bias"):
                weight.zero_()
            elif all(weight is not kept for kept in but):
                weight.uniform_(-scale, scale)


def zero(tensors: list[Tensor]) -> None:
    for tensor in tensors:
        tensor.zero_()


def without_norms(model: nn.Module) -> Iterator[Tensor]:
    for module in model.modules():
        if not isinstance(module, (nn.LayerNorm, nn.RMSNorm)):
            yield from module.parameters(recurse=False)
