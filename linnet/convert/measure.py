"""Differences and times of a converted model on an example, for its report."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor

from linnet.base.torch_private import tree_leaves
from linnet.convert.example import Call, Example, difference, recorded, timed, undisturbed
from linnet.convert.loops import note_on_loop
from linnet.convert.report import Layer, Report
from linnet.convert.tree import Slot, Swap


def measure(report: Report, swap: Swap, lines: dict[Slot, Layer], example: Example) -> None:
    """Fill in what a report says about the example; a layer that fails on it is put back."""
    replacements = [line.module for line in lines.values() if line.module is not None]
    with undisturbed(swap.model, *replacements):

        def run() -> Any:
            return example.run(swap.original())

        expected, calls = recorded(run, [slot.layer for slot in lines])
        for slot, line in lines.items():
            measure_layer(slot, line, calls[slot.layer], swap)
            if line.module is not None:
                line.notes += note_on_loop(slot.layer, line.module, calls[slot.layer], run)
        measure_whole(report, swap, example, expected)


def measure_layer(slot: Slot, line: Layer, calls: list[Call], swap: Swap) -> None:
    if not calls:
        line.notes.append("not called with this example")
        return
    call, module = max(calls, key=size), line.module
    assert module is not None
    try:
        got = call.again(module)
    except Exception as error:  # the original works, so whatever this is, the original stays
        swap.drop(slot)
        line.module, line.why = None, f"{type(error).__name__} with the example: {error}"
        return
    apart = difference(got, call.returned)
    line.measured = timed(partial(call.again, slot.layer), partial(call.again, module), apart)


def size(call: Call) -> int:
    """The number of elements of what a layer gets, by which the longest call is found."""
    given = (call.arguments, call.named)
    return sum(each.numel() for each in tree_leaves(given) if isinstance(each, Tensor))


def measure_whole(report: Report, swap: Swap, example: Example, expected: Any) -> None:
    apart = None
    if difference(example.run(swap.original()), expected) == 0:
        apart = difference(example.run(swap.replaced()), expected)
    else:
        report.notes.append(
            "the original returns no tensors, or others when it is called with this example again (it keeps "
            "a state, or draws random numbers of its own), so outputs of the whole model are not compared"
        )
    report.whole = timed(lambda: example.call(swap.original()), lambda: example.call(swap.replaced()), apart)
