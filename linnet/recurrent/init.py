"""Initialisations that several units share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from linnet.base.options import choose
from linnet.recurrent.frame_norm import FrameNorm
from linnet.recurrent.projection import Projection

INITS = ("uniform", "xavier", "orthogonal")


def uniform_(cell: nn.Module, bound: float) -> None:
    for weight in cell.parameters():
        nn.init.uniform_(weight, -bound, bound)


def linear_(projection: Projection, bound: float) -> None:
    """U(-bound, bound) for the matrix and the biases, as torch.nn.Linear starts."""
    for weight in (projection.weight, *projection.bias_tensors):
        nn.init.uniform_(weight, -bound, bound)


def clear_(cell: nn.Module) -> None:
    """Biases to 0 and norms to their start: what every initialisation below begins with."""
    for module in cell.modules():
        if isinstance(module, (nn.LayerNorm, nn.RMSNorm, FrameNorm)):
            module.reset_parameters()
        elif isinstance(module, Projection):
            for bias in module.bias_tensors:
                nn.init.zeros_(bias)


def each_part_(projection: Projection, fill: Callable[[Tensor], object]) -> None:
    """Apply `fill` to the matrix of each gate, and of each of its heads, on its own."""
    for name in projection.parts:
        for block in projection.blocks_of(name):
            fill(block)


def xavier_uniform_(projection: Projection) -> None:
    """Xavier-uniform over the matrix of all gates; with heads, over that of each head."""
    rows, depth = projection.weight.shape
    # As torch computes it, so that one head gives the same numbers.
    bound = math.sqrt(3.0) * math.sqrt(2.0 / float(depth + rows // projection.heads))
    nn.init.uniform_(projection.weight, -bound, bound)


def orthogonal_(weight: Tensor) -> None:
    """Fill a matrix of any dtype; torch decomposes matrices of float32 and float64 only."""
    wide = weight.to(torch.promote_types(weight.dtype, torch.float32))
    weight.copy_(nn.init.orthogonal_(wide.clone()))


@torch.no_grad()
def gated_(how: str, matrices: Sequence[Projection], hidden_size: int) -> None:
    """The starts of gated units; `matrices` are the input's, then those of the state.

    uniform     U(-1/sqrt(H), 1/sqrt(H)) for weights and biases, as torch.nn does
    xavier      Xavier-uniform over the matrix of all gates and of x and h together (the LRN authors); with
                heads, the inputs of a gate are the channels that it reads
    orthogonal  per gate: Xavier-normal from the input, orthogonal from the state (the NRU authors)
    """
    choose("init", how, INITS)
    if how == "orthogonal":
        each_part_(matrices[0], nn.init.xavier_normal_)
        for matrix in matrices[1:]:
            each_part_(matrix, orthogonal_)
        return
    fans = matrices[0].weight.shape[1] + matrices[1].weight.shape[1] + len(matrices[0].weight)
    bound = 1 / math.sqrt(hidden_size) if how == "uniform" else math.sqrt(6 / fans)
    for matrix in matrices:
        nn.init.uniform_(matrix.weight, -bound, bound)
    if how == "uniform":
        # After all matrices, as torch draws them, and a bias that two projections hold once.
        for bias in {id(bias): bias for matrix in matrices for bias in matrix.bias_tensors}.values():
            nn.init.uniform_(bias, -bound, bound)


@torch.no_grad()
def chrono_(forget_bias: Tensor, longest: int) -> None:
    """b_f = log of a whole number drawn from 1 ... longest, so that a unit keeps what it reads that long.

    Differs from Tallec and Ollivier (2018), who draw a real number from [1, longest - 1]; whole
    numbers are what the NRU authors' code draws.
    """
    forget_bias.copy_(torch.randint(1, longest + 1, forget_bias.shape, device=forget_bias.device))
    forget_bias.log_()
