"""Loops over single steps in a model, found by running it, and what one call over the sequence would give.

Programs for reinforcement learning step a layer through a sequence, because nn.LSTM cannot start an episode
in the middle of one: before each step they multiply the state by a mask. Linnet's `resets=` does this in one
call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from linnet.convert.example import Call, copied, difference, timed
from linnet.convert.torch_layers import stack_of_cell
from linnet.layers.torch_twins import is_torchs
from linnet.recurrent.recurrent import Recurrent

FEWEST = 4  # steps that are worth a note


@dataclass
class Step:
    """One step: x [1, B, input_size], and the states before and after it, [layers, B, size] each."""

    x: Tensor
    given: list[Tensor]
    returned: list[Tensor]
    given_at: list[int]
    returned_at: list[int]


def note_on_loop(
    layer: nn.Module, ours: nn.Module, calls: Sequence[Call], run: Callable[[], Any]
) -> list[str]:
    """Say what one call would give in place of a loop; nothing if there is no such loop."""
    steps = chain([step for call in calls if (step := step_of(layer, call)) is not None])
    if len(steps) < FEWEST:
        return []
    found = f"called {len(calls)} times, one step each"
    if depends_on_itself(layer, calls, run):
        return [f"{found}; each input depends on the outputs before it, so the loop has to stay"]
    stack = ours if isinstance(ours, Recurrent) else stack_of_cell(layer)
    return [found + measured(partial(loop, layer, calls[: len(steps)]), stack, steps)]


def step_of(layer: Any, call: Call) -> Step | None:
    """A call as a step; None if it is something else, such as a whole sequence."""
    named = {**dict(zip(("input", "hx"), call.arguments, strict=False)), **call.named}
    x, state, is_cell = named.get("input"), named.get("hx"), isinstance(layer, nn.RNNCellBase)
    if not is_torchs(layer) or not isinstance(x, Tensor) or state is None or x.dim() != (2 if is_cell else 3):
        return None
    returned = call.returned if is_cell else call.returned[1]
    given, new = ([each] if isinstance(each, Tensor) else list(each) for each in (state, returned))
    if is_cell:
        x, given, new = x[None], [s[None] for s in given], [s[None] for s in new]
    else:
        x = x.transpose(0, 1) if layer.batch_first else x
    if len(x) != 1 or getattr(layer, "bidirectional", False):
        return None
    return Step(x, given, new, call.given_at[-len(given) :], call.returned_at[-len(new) :])


def chain(steps: Sequence[Step]) -> list[Step]:
    """The first steps, as long as each starts from the state of the one before, or from zeros."""
    linked = list(steps[:1])
    for before, step in pairwise(steps):
        if not bool((is_kept(before, step) | is_zero(step)).all()):
            break
        linked.append(step)
    return linked


def is_kept(before: Step, step: Step) -> Tensor:
    """For each sequence of the batch: whether the state is that of the step before, [B]."""
    pairs = list(zip(before.returned, step.given, strict=True))
    if any(a.shape != b.shape for a, b in pairs):
        return torch.zeros(step.x.shape[1], dtype=torch.bool, device=step.x.device)
    return torch.stack([(a == b).all(-1).all(0) for a, b in pairs]).all(0)


def is_zero(step: Step) -> Tensor:
    return torch.stack([(state == 0).all(-1).all(0) for state in step.given]).all(0)


def is_reset(before: Step, step: Step) -> Tensor:
    return is_zero(step) & ~is_kept(before, step)


def depends_on_itself(layer: nn.Module, calls: Sequence[Call], run: Callable[[], Any]) -> bool:
    """Whether the inputs of a layer change with what its first call returns."""
    inputs: list[Any] = []

    def disturb(layer: nn.Module, arguments: tuple, named: dict[str, Any], returned: Any) -> Any:
        inputs.append(copied(arguments[0] if arguments else named["input"]))
        return shaken(returned) if len(inputs) == 1 else returned

    handle = layer.register_forward_hook(disturb, with_kwargs=True)
    try:
        run()
    finally:
        handle.remove()
    before = [call.arguments[0] if call.arguments else call.named["input"] for call in calls]
    return difference(inputs[: len(before)], before) != 0


def shaken(returned: Any) -> Any:
    """The same, with other numbers in all tensors."""
    if isinstance(returned, Tensor):
        return returned + 2 * torch.randn_like(returned)
    return tuple(map(shaken, returned))


def measured(before: Callable[[], Any], stack: Recurrent, steps: Sequence[Step]) -> str:
    """The difference and the time of one call in place of all steps."""
    is_masked = any(one.returned_at != step.given_at for one, step in pairwise(steps))
    call = partial(stack.forward, *arguments(steps, stack), **resets(steps, stack) if is_masked else {})
    apart = difference(call()[1], packed(steps[-1].returned))
    times = timed(before, call, apart)
    with_what = ", with states that are cleared where an episode starts" if is_masked else ""
    line = "rnn(x, state, resets=starts)" if is_masked else "rnn(x, state)"
    return (
        f"{with_what}: one call {line} takes {times.after:.3g} ms where the {len(steps)} steps of the "
        f"original take {times.before:.3g} ms (difference {apart:.1e}), see docs/reinforcement_learning.md"
    )


def arguments(steps: Sequence[Step], stack: Recurrent) -> tuple[Tensor, Any]:
    """The inputs of all steps, laid out as the stack reads them, and the first state."""
    x = torch.cat([step.x for step in steps])
    return x.transpose(0, 1) if stack.batch_first else x, packed(steps[0].given)


def packed(states: Sequence[Tensor]) -> Any:
    return tuple(states) if len(states) > 1 else states[0]


def resets(steps: Sequence[Step], stack: Recurrent) -> dict[str, Tensor]:
    """Where the loop has cleared the states."""
    first = torch.zeros(steps[0].x.shape[1], dtype=torch.bool, device=steps[0].x.device)
    starts = torch.stack([first, *(is_reset(before, step) for before, step in pairwise(steps))])
    return {"resets": starts.T if stack.batch_first else starts}


def loop(layer: nn.Module, calls: Sequence[Call]) -> None:
    for call in calls:
        call.again(layer)
