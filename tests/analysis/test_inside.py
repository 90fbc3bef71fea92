"""What is seen inside a model is what is there: memories step by step, Jacobians beside autograd's own."""

from __future__ import annotations

import torch
from torch import Tensor

from linnet.analysis.inside import memory_changes, reach, unroll
from linnet.models.sequence import SequenceModel, SequenceModelConfig
from linnet.tasks.adding import Add
from linnet.tasks.memory import EndlessData
from linnet.tasks.recall import Copy, RecallData

NRU = SequenceModelConfig("nru", {"memory_size": 4, "num_heads": 1}, hidden_size=5)


def test_the_changes_of_the_memory_are_those_of_the_state():
    torch.manual_seed(1)
    task = Copy(RecallData(span=4, symbols=3, recalled=2), NRU)
    model = task.build()
    changes = memory_changes(task, model)
    (batch,) = task.source.evaluation("test", 1, task.seed, 1)
    assert changes.sizes.shape == (8, 4)
    for step in range(1, 8):
        (_, before), (_, after) = (model(batch.inputs[:size])[1] for size in (step, step + 1))
        torch.testing.assert_close(changes.sizes[step], (after - before)[0, 0].abs())
    assert (changes.starts, changes.answers) == ([0], [6])


def test_where_the_state_is_kept_several_sequences_follow_each_other():
    task = Copy(RecallData(span=4, symbols=3, recalled=2, reset_every=5), NRU)
    changes = memory_changes(task, task.build())
    assert len(changes.sizes) == 24
    assert (changes.starts, changes.answers) == ([0, 8, 16], [6, 14, 22])


def test_the_reach_is_the_norm_of_the_jacobian():
    """Of one output and one example, where nothing is estimated; of both parts of the state together."""
    torch.manual_seed(1)
    task = Add(EndlessData(span=6), NRU)
    model = task.build()
    found = reach(task, model, examples=1)
    (batch,) = task.source.evaluation("test", 1, task.seed, 1)
    assert found.shape == (5,)
    for distance in range(1, 6):
        expected = jacobian(model, batch.inputs[:-distance], batch.inputs[-distance:]).norm()
        torch.testing.assert_close(found[distance - 1], expected)


def jacobian(model: SequenceModel, before: Tensor, after: Tensor) -> Tensor:
    """Of the one answer to `after` by the state that `before` leaves, flat."""
    _, state = model(before)
    parts = torch.autograd.functional.jacobian(
        lambda *parts: model(after, type(state)(*parts))[0].squeeze(), tuple(state)
    )
    return torch.cat([part.flatten() for part in parts])


def test_the_reach_of_several_outputs_is_near_the_norm_of_all_of_them():
    torch.manual_seed(1)
    task = Copy(RecallData(span=3, symbols=3, recalled=2), SequenceModelConfig("lstm", hidden_size=5))
    model = task.build()
    batch = next(iter(task.source.evaluation("test", 400, task.seed, 400)))
    answer, states = unroll(model, batch.inputs)
    squares = [
        sum(
            g.square().sum() for g in torch.autograd.grad(answer[:, one].sum(), states[-3], retain_graph=True)
        )
        for one in range(answer.shape[1])
    ]
    expected = torch.stack(squares).sum().div(400).sqrt()
    torch.testing.assert_close(reach(task, model, examples=400)[1], expected, rtol=0.1, atol=0)
