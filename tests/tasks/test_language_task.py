"""The task of language modelling: its windows, its steps, and its figures."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from helpers import liven, same
from torch import Tensor

from linnet.cli.output import result_line
from linnet.data.batches import Window
from linnet.models.language import LanguageModel, LanguageModelConfig
from linnet.tasks.base import Task
from linnet.tasks.evaluation import evaluate
from linnet.tasks.language import BY_LETTERS, Language, LanguageData, TextMetrics, fitting
from linnet.train.progress import sentence

V = 9


class Words:
    """As much of a vocabulary as a task asks for."""

    fingerprint, level = "abc", "word"

    def __len__(self) -> int:
        return V


class Text:
    """As much of a corpus as a task asks for."""

    name, level, vocabulary = "made", "word", Words()

    def __init__(self) -> None:
        source = torch.Generator().manual_seed(0)
        self.train, self.valid, self.test = (
            torch.randint(0, V, (n,), generator=source) for n in (203, 47, 31)
        )


CONFIG = LanguageModelConfig(unit="ran", embedding_size=4, hidden_size=5, num_layers=1)


class OfText(Language):
    corpus = Text()  # type: ignore[assignment]


def make(**given: Any) -> Language:
    config = given.pop("config", CONFIG)
    return OfText(LanguageData(**{"batch": 4, "length": 6, **given}), config)


def training(task: Language, epoch: int, first: int = 0) -> Any:
    return task.batches("train", epoch, first)


def model_of(task: Language) -> LanguageModel:
    return liven(task.build())


def inputs(windows: Any) -> list[Tensor]:
    return [window.inputs for window in windows]


def test_it_is_a_task():
    task: Task = make()
    assert task.name == "lm"
    assert isinstance(task.build(), LanguageModel)


@pytest.mark.parametrize("varied", [False, True])
def test_an_epoch_can_be_entered_at_any_window(varied: bool):
    task = make(varied=varied)
    whole = inputs(training(task, 2))
    assert len(whole) == task.batches_per_epoch(2)
    same(inputs(training(task, 2, 3)), whole[3:])


def test_varied_windows_differ_from_epoch_to_epoch():
    task = make(varied=True, length=12)
    lengths = [[len(x) for x in inputs(training(task, epoch))] for epoch in (1, 2, 1)]
    assert lengths[0] == lengths[2] != lengths[1]


def test_processes_share_the_columns():
    task = make()
    whole = inputs(training(task, 1))
    parts = [[window.columns(rank, 2).inputs for window in training(task, 1)] for rank in range(2)]
    same([torch.cat(pair, 1) for pair in zip(*parts, strict=True)], whole)


def test_steps_carry_the_state():
    task = make()
    model = model_of(task)
    first, second = list(training(task, 1))[:2]
    carried = task.step(model, first, None)
    joined = Window(
        *(torch.cat(pair) for pair in ((first.inputs, second.inputs), (first.targets, second.targets))), 0, 0
    )
    whole, rest = task.step(model, joined, None), task.step(model, second, carried.carry)
    same(carried.total + rest.total, whole.total)
    assert (carried.count, whole.count) == (24, 48)
    assert not any(t.requires_grad for layer in rest.carry for t in layer)
    rest.objective.backward()


def test_a_state_that_is_not_carried_begins_from_zeros():
    task = make(carry=False, eval_batch=1, eval_length=5)
    model = model_of(task)
    first, second = list(training(task, 1))[:2]
    carried = task.step(model, first, None)
    same(task.step(model, second, carried.carry).total, task.step(model, second, None).total)
    tokens, total = task.corpus.valid, 0.0
    for start in range(0, len(tokens) - 1, 5):
        window = tokens[start : start + 6]
        log_p, _ = model.log_probs(window[:-1, None])
        total -= log_p[:, 0].gather(-1, window[1:, None]).sum().item()
    assert evaluate(task, model, "valid")["loss"] == pytest.approx(total / (len(tokens) - 1), rel=1e-12)


def test_penalties_are_further_numbers_of_a_row():
    task = make(config=LanguageModelConfig(unit="ran", embedding_size=4, hidden_size=5, ar=1.0))
    result = task.step(model_of(task), next(training(task, 1)), None)
    assert set(result.extra) == {"ar"}
    same(result.objective.item(), (result.total / result.count).item() + result.extra["ar"])


@pytest.mark.parametrize("eval_batch", [1, 3])
def test_every_token_but_the_first_is_evaluated_once(eval_batch: int):
    task = make(eval_batch=eval_batch, eval_length=5)
    figures = evaluate(task, model_of(task), "test")
    assert figures["tokens"] == len(task.corpus.test) - 1


def test_figures_are_those_of_the_whole_text():
    task = make(eval_batch=1, eval_length=5)
    model, tokens = model_of(task), task.corpus.valid
    log_p, _ = model.log_probs(tokens[:-1, None])
    expected = -log_p[:, 0].gather(-1, tokens[1:, None]).mean().item()
    figures = evaluate(task, model, "valid")
    assert figures["loss"] == pytest.approx(expected, rel=1e-12)
    assert figures["perplexity"] == pytest.approx(math.exp(expected))
    assert figures["bits_per_word"] == pytest.approx(expected / math.log(2))
    assert "bpc" not in figures


def test_counts_are_whole_numbers_in_files_and_lines():
    figures = evaluate(make(), model_of(make()), "valid")
    assert type(figures["tokens"]) is int
    assert result_line("valid", {"loss": 1.5, "tokens": 210_539}) == "valid: loss 1.5  tokens 210,539"
    row = {"step": 1, "epoch": 1, "split": "valid", "loss": 1.5, "tokens": 210_539}
    assert sentence(row) == "epoch 1  step 1  valid: loss 1.5  tokens 210,539"


@pytest.mark.parametrize(("level", "name"), [("char", "bpc"), ("byte", "bpc"), ("bpe", "bits_per_token")])
def test_bits_have_the_name_of_what_they_are_per(level: str, name: str):
    metrics = TextMetrics(level)
    metrics.total, metrics.count = 2 * math.log(2), 2
    assert metrics.compute()[name] == pytest.approx(1.0)


def test_the_authors_batching_leaves_the_tail_out():
    task = make(eval_batch=4, eval_length=6, eval_tail="drop")
    assert evaluate(task, model_of(task), "valid")["tokens"] == 4 * 6


def test_evaluation_drops_nothing_and_leaves_the_mode_alone():
    task = make(config=LanguageModelConfig(unit="ran", embedding_size=4, hidden_size=5, output_dropout=0.5))
    model = model_of(task)
    assert evaluate(task, model, "valid") == evaluate(task, model, "valid")
    assert model.training
    assert not any(weight.grad is not None for weight in model.parameters())


def test_a_perplexity_that_no_number_holds_is_infinite():
    task = make()
    model = model_of(task)
    model.softmax.bias.data[:] = torch.arange(V) * 1e4
    assert evaluate(task, model, "valid")["perplexity"] == math.inf


def test_it_describes_what_a_checkpoint_must_fit():
    described = make().describe()
    assert described["vocabulary"] == "abc"
    assert described["vocabulary_size"] == V
    assert described["task"] == "lm"


def test_a_split_or_a_tail_that_is_none_is_refused():
    with pytest.raises(ValueError, match="split must be one of 'train', 'valid', 'test', 'all'; got 'dev'"):
        evaluate(make(), model_of(make()), "dev")
    with pytest.raises(ValueError, match="tail is one of"):
        make(tail="cut")
    with pytest.raises(ValueError, match="batch is at least 1"):
        make(batch=0)


# ---------------------------------------------------------------------------------------- defaults


@pytest.mark.parametrize(
    ("given", "by_letters"),
    [
        ({}, False),
        ({"level": "char"}, True),
        ({"level": "byte"}, True),
        ({"level": "bpe"}, False),
        ({"path": "a.txt"}, False),
        ({"path": "a.txt", "corpus": "enwik8"}, False),
        ({"corpus": "enwik8"}, True),
        ({"corpus": "text8", "level": "word"}, False),
        ({"corpus": "of another world"}, False),
    ],
)
def test_the_level_of_tokens_decides_the_defaults(given: dict[str, Any], by_letters: bool):
    expected = {**Language.defaults, **(BY_LETTERS if by_letters else {})}
    assert Language.defaults_with(given) == expected


def test_a_short_text_is_read_in_fewer_columns():
    tokens = torch.zeros(101, dtype=torch.int64)
    assert fitting(20, tokens, 5) == 20
    assert fitting(20, tokens, 10) == 10
    assert fitting(20, tokens, 1000) == 1
