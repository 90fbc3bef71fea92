"""Memory tasks: what counts, what is right, what is carried, and what guessing costs."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linnet.data.batches import IGNORE
from linnet.data.digits import Digits, Part
from linnet.data.memory import Adding, Copying, Denoising, Selective, SequenceBatch
from linnet.models.sequence import SequenceModel, SequenceModelConfig
from linnet.tasks.adding import Add
from linnet.tasks.base import Task
from linnet.tasks.evaluation import evaluate
from linnet.tasks.memory import CLOSE, Memory
from linnet.tasks.pixels import ImageData, Pixels
from linnet.tasks.recall import Copy, Denoise, RecallData, SelectiveCopy

KINDS = {Copying: Copy, Denoising: Denoise, Selective: SelectiveCopy, Adding: Add, Digits: Pixels}
CONFIG = SequenceModelConfig(unit="ran", hidden_size=6)


def images() -> Digits:
    labels = (np.arange(40) % 10).astype(np.uint8)
    part = Part(np.random.RandomState(0).randint(0, 256, (40, 4)).astype(np.uint8), labels)
    return Digits("made", part, part, part, 255, np.arange(4))


def make(source: Any = None, **given: Any) -> Memory:
    source = source or Copying(6, 3, 2)
    chosen = {"batch": 4, "eval_examples": 12, **given}
    kind: type[Memory] = KINDS[type(source)]
    given_source = type(kind.__name__, (kind,), {"source_of": staticmethod(lambda data: source)})
    data = ImageData(eval_batch=4, **chosen) if kind is Pixels else RecallData(**chosen)
    return given_source(data, CONFIG)


def training(task: Memory, first: int = 0) -> Any:
    return task.batches("train", 1, first)


class Oracle(nn.Module):
    """Knows the answers to the batch it is given: what a network with a perfect memory would say."""

    def __init__(self, task: Memory, wrong: int = 0):
        super().__init__()
        self.one = nn.Parameter(torch.ones(()))
        self.known = {batch.inputs.numpy().tobytes(): batch.targets for batch in task.batches("valid")}
        self.task, self.wrong = task, wrong

    def forward(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        targets = self.known[x.numpy().tobytes()]
        if self.task.source.real:
            return targets[..., None] + 0.1 * self.wrong, None
        said = torch.where(targets == IGNORE, 0, (targets + self.wrong) % self.task.source.output_size)
        return 50.0 * F.one_hot(said, self.task.source.output_size), None


SYMBOLS = [Copying(6, 3, 2), Copying(6, 3, 2, variable=True), Denoising(6, 3, 2), Selective(6, 3, 2)]
SOURCES = [*SYMBOLS, Adding(6), images()]


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: type(source).__name__)
def test_perfect_answers_cost_nothing_and_are_right(source: Any):
    task = make(source)
    perfect = evaluate(task, Oracle(task), "valid")
    assert perfect["loss"] < 1e-6
    assert perfect["accuracy"] == 1
    # Three batches have three lags, whose mean may be anywhere.
    if not getattr(source, "variable", False):
        assert perfect["baseline"] == pytest.approx(source.baseline)
    assert evaluate(task, Oracle(task, wrong=1), "valid")["accuracy"] == 0


@pytest.mark.parametrize("source", SYMBOLS, ids=["copying", "variable", "denoising", "selective"])
def test_the_baseline_of_an_evaluation_is_what_guessing_costs_there(source: Any):
    class Guesser(Oracle):
        def forward(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
            answers = torch.zeros(*x.shape, source.output_size)
            blank = self.known[x.numpy().tobytes()] == 0
            answers[..., 0] = torch.where(blank, 50.0, -50.0)
            return answers, None

    task = make(source)
    figures = evaluate(task, Guesser(task), "valid")
    assert figures["loss"] == pytest.approx(figures["baseline"], rel=1e-5)
    (guess,) = task.baselines("valid", figures)
    assert guess.figures == {"loss": figures["baseline"], "accuracy": 1 / 3}


def test_the_baselines_of_sums_and_digits_have_an_accuracy():
    """Of sums, the share close to 1, their mean; of digits, that of the most frequent one."""
    (sums,) = make(Adding(6), eval_examples=4000).baselines("test", {"baseline": 1 / 6})
    # The density of the sum of two numbers is 1 at 1, and falls linearly to both sides.
    assert sums.figures["accuracy"] == pytest.approx(2 * CLOSE - CLOSE**2, abs=0.015)
    (digits,) = make(images(), eval_examples=15).baselines("test", {"baseline": 2.3})
    assert digits.figures["accuracy"] == pytest.approx(2 / 15)


def test_it_is_a_task_that_learns_nothing_of_its_evaluation():
    task: Task = make()
    model = task.build()
    assert isinstance(model, SequenceModel)
    assert model.one_hot
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.train()
    assert evaluate(task, model, "test") == evaluate(task, model, "test")
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert evaluate(task, model, "test") != evaluate(task, model, "valid")


def test_all_steps_of_copying_count_and_ten_of_denoising_and_all_are_read():
    sources = ((Copying(20), 40, 40), (Denoising(20), 31, 10), (Adding(20), 20, 1), (images(), 5, 1))
    for source, steps, counted in sources:
        task = make(source)
        batch = next(training(task))
        result = task.step(task.build(), batch, None)
        assert (result.tokens, result.count) == (steps * 4, counted * 4)
        assert float(result.total) == pytest.approx(float(result.objective.detach()) * result.count)


def test_the_loss_is_the_mean_over_the_steps_that_count():
    task = make(Denoising(6, 3, 2))
    model, batch = task.build(), next(training(task))
    answers, _ = model(batch.inputs)
    expected = F.cross_entropy(answers[-2:].flatten(0, 1), batch.targets[-2:].flatten())
    torch.testing.assert_close(task.step(model, batch, None).objective, expected)


def test_blanks_are_not_what_accuracy_is_about():
    task = make(Copying(6, 3, 2))
    batch = next(training(task))
    silent = torch.zeros(*batch.targets.shape, 4)
    silent[..., 0] = 1
    judged = task.compare(silent, batch.targets)
    assert (judged.right, judged.asked) == (0, 2 * 4)


# ---------------------------------------------------------------------------------------- forgetting


def test_the_state_starts_anew_with_each_sequence():
    task = make()
    model, (first, second) = task.build(), islice(training(task), 2)
    carried = task.step(model, first, None).carry
    assert carried is None
    assert task.step(model, second, carried).objective == task.step(model, second, None).objective


def test_the_state_can_be_kept_for_several_sequences():
    task = make(reset_every=2)
    model, batches = task.build(), list(islice(training(task), 3))
    kept = task.step(model, batches[0], None).carry
    assert not any(part.requires_grad for part in kept)
    assert task.step(model, batches[1], kept).objective != task.step(model, batches[1], None).objective
    assert task.step(model, batches[1], kept).carry is None
    # Number 2 starts anew whatever it is given.
    assert task.step(model, batches[2], kept).objective == task.step(model, batches[2], None).objective


def test_batches_go_on_and_are_shared():
    task = make()
    whole = list(islice(training(task), 4))
    (later,) = islice(training(task, 3), 1)
    assert torch.equal(later.inputs, whole[3].inputs)
    halves = [whole[0].columns(rank, 2) for rank in (0, 1)]
    assert torch.equal(torch.cat([half.inputs for half in halves], 1), whole[0].inputs)
    assert task.batches_per_epoch(1) is None
    assert make(images()).batches_per_epoch(1) == 10


@pytest.mark.parametrize("span", [100, 500])
def test_random_labels_do_not_make_training_diverge(span: int):
    """A few steps of what the paper ran for long."""
    torch.manual_seed(0)
    task = Copy(RecallData(span=span, random_labels=True, batch=2), SequenceModelConfig())
    model = task.build()
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    for batch in islice(training(task), 4):
        result = task.step(model, batch, None)
        result.objective.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        assert torch.isfinite(result.objective)


def test_settings_are_checked():
    with pytest.raises(ValueError, match="reset_every is at least 1"):
        make(reset_every=0)
    with pytest.raises(ValueError, match="eval_examples is at least 1"):
        make(eval_examples=0)
    with pytest.raises(ValueError, match="split must be one of"):
        evaluate(make(), make().build(), "dev")
    assert isinstance(next(training(make(images(), eval_examples=0))), SequenceBatch)
