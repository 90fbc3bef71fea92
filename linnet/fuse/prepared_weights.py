"""The weights of a cell that autograd gets at each call of a prepared scan or step."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from linnet.fuse.planning import matrices_of, weights_of
from linnet.fuse.unit import Stage, Unit


class Weights(NamedTuple):
    """The matrix and the bias of the input projection, weights with one number per channel, matrices."""

    weight: Tensor
    bias: Tensor | None
    own: tuple[Tensor, ...]
    recurrent: tuple[Tensor, ...]

    @classmethod
    def of(cls, cell: Unit, stage: Stage) -> Weights:
        own, recurrent = weights_of(cell, stage).values(), matrices_of(cell, stage)
        return cls(cell.input.weight, cell.input.bias, tuple(own), tuple(recurrent))

    @property
    def are_parameters(self) -> bool:
        tensors = (self.weight, self.bias, *self.own, *self.recurrent)
        return all(tensor is None or type(tensor) is nn.Parameter for tensor in tensors)


class PreparedWeights:
    """Finds the weights of a cell once, since what is prepared is valid only as long as they are the same.

    A part of a parameter, such as the bias of one gate, is a view, which autograd has to record at each call.
    """

    def __init__(self, cell: Unit, stage: Stage):
        self.stage, found = stage, Weights.of(cell, stage)
        self.parameters = found if found.are_parameters else None

    def of(self, cell: Unit) -> Weights:
        return Weights.of(cell, self.stage) if self.parameters is None else self.parameters
