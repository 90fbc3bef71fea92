"""Which way a call takes, and why: `linnet.explain(rnn, x)`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from linnet.run.observed import Note, observing


class Explanation:
    """What ran in a call, in order: one line for each layer and direction, as text.

    ways    "loop", "operation", "scan", "step" or "stepwise" for each run
    notes   the same, with the unit and the reason
    """

    def __init__(self, head: str, notes: list[Note]):
        self.head, self.notes = head, notes

    @property
    def ways(self) -> list[str]:
        return [note.way for note in self.notes]

    def __str__(self) -> str:
        runs = [f"{i}: {note.unit}: {note.way}: {note.why}" for i, note in enumerate(self.notes)]
        return "\n".join([self.head, *(runs or ["no unit of Linnet ran"])])

    __repr__ = __str__


def explain(module: nn.Module, *inputs: Any, **named: Any) -> Explanation:
    """Run module(*inputs, **named) once, and return which way each layer and direction in it has taken.

        print(linnet.explain(rnn, x, lengths=lengths))

    A unit that runs on the reference loop is many times slower than its kernel; the text gives the reason.
    Whether gradients are recorded is part of the answer, so call this as you call the module.
    """
    notes: list[Note] = []
    with observing(notes):
        module(*inputs, **named)
    tensors = [given for given in (*inputs, *named.values()) if isinstance(given, Tensor)]
    x = f", x {list(tensors[0].shape)} {tensors[0].dtype} on {tensors[0].device}" if tensors else ""
    gradients = "with" if torch.is_grad_enabled() else "without"
    head = f"{type(module).__name__}{x}, {gradients} gradients, {torch.get_num_threads()} threads"
    return Explanation(head, notes)
