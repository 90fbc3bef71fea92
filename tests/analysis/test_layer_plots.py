"""Plots of the signals inside layers: the curves are those of the run's model, for its data or a text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import linnet
from linnet import cli
from linnet.analysis import layer_plots
from linnet.analysis.layers import (
    Variances,
    first_layer_inputs,
    layer_variances,
    read_gates,
    reads_of_first_layer,
    start_variances,
)
from linnet.analysis.runs import find_runs, read_run
from linnet.runs.config import RunConfig, override
from linnet.train.loop import train

pytest.importorskip("matplotlib")

TEXT = "what a great voice , and then a long dull end"
WORDS = TEXT.split()
FORMS = {
    "alpha": {"unit": "sru", "num_layers": 3},
    "no-alpha": {"unit": "sru", "num_layers": 3, "unit_options": {"rescale": False}},
    "lrn": {"unit": "lrn", "num_layers": 1, "unit_options": {"activation": "identity"}},
    "left": {"unit": "lrn", "num_layers": 1, "padding": "left"},
    "both": {"unit": "lrn", "num_layers": 1, "bidirectional": True},
}


ONE_DIRECTION = {"bidirectional": False, "pooling": "last", "num_layers": 2, "counts": "none", "init": "unit"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Classifiers of texts of 2 to 5 words."""
    folder = tmp_path_factory.mktemp("classifiers")
    texts = "a voice,good\na dull dull noise,bad\nwhat a great voice,good\nwhat a long dull noise,bad\n"
    (folder / "own.csv").write_text("text,label\n" + texts * 20)
    brief = {"path": str(folder / "own.csv"), "set": "own", "hidden_size": 6, "embedding_size": 5}
    for name, form in FORMS.items():
        config = override(
            RunConfig(task="classify"), {**ONE_DIRECTION, **brief, "steps": 3, "eval_batch": 3, **form}
        )
        train(config, folder / name)
    return folder


def curves(axes: Any) -> dict[str, list[float]]:
    return {line.get_label(): list(line.get_ydata()) for line in axes.get_lines()}


# -------------------------------------------------------------------------------------- variances


def test_the_input_of_the_first_layer_is_read_without_padding(folder: Path):
    there = linnet.load(folder / "alpha")
    inputs = list(first_layer_inputs(there.task, there.model))
    batches = list(there.task.batches("valid"))
    assert len({int(length) for batch in batches for length in batch.inputs.lengths}) > 1
    for x, batch in zip(inputs, batches, strict=True):
        shortest = int(batch.inputs.lengths.min())
        assert torch.equal(x, there.model.embedding(batch.inputs.steps[:shortest]))
    assert not there.model.stack[0]._forward_pre_hooks


def test_the_mask_is_that_of_the_lengths(folder: Path):
    there = linnet.load(folder / "alpha")
    x, mask = reads_of_first_layer(there.model, lambda: there.predict(["a voice", "what a great voice"]))
    assert x.shape == (4, 2, 5)
    assert mask.sum(0).tolist() == [2, 4]


def test_variances_at_the_start_are_means_over_the_inputs(folder: Path):
    task = linnet.load(folder / "alpha").task
    inputs = [torch.randn(4, 3, 5), torch.randn(2, 2, 5)]
    before = torch.get_rng_state()
    found = start_variances(task, 7, inputs)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(7)
    stack = task.build().eval().stack
    for layer, one, other in zip(found, *(layer_variances(stack, x) for x in inputs), strict=True):
        assert layer == pytest.approx(Variances(*((a + b) / 2 for a, b in zip(one, other, strict=True))))


def test_the_plot_has_the_variances_of_each_layer(folder: Path):
    figure = layer_plots.draw_variance(find_runs([folder]))
    assert [axes.get_title() for axes in figure.axes] == ["own", "own", *["independent input"] * 2]
    there = linnet.load(folder / "no-alpha")
    found = start_variances(there.task, 1, list(first_layer_inputs(there.task, there.model)))
    state, output, *independent = map(curves, figure.axes)
    assert state["sru, rescale False"] == pytest.approx([layer.c / layer.x for layer in found])
    assert output["sru, rescale False"] == pytest.approx([layer.h / found[0].x for layer in found])
    levels = [line.get_ydata()[0] for line in figure.axes[0].get_lines() if line.get_linestyle() == ":"]
    assert levels == pytest.approx([1 / 3, 1])
    # Without the correction the output of each layer is smaller.
    for drawn in (output, independent[1]):
        assert drawn["sru, rescale False"][-1] < drawn["sru, rescale True"][-1]
    assert independent[0]["sru, rescale True"] != state["sru, rescale True"]


# ------------------------------------------------------------------------------------------ decay


def test_a_word_has_a_curve_from_where_it_is_read(folder: Path):
    (axes,) = layer_plots.draw_decay([read_run(folder / "lrn")], TEXT).axes
    there = linnet.load(folder / "lrn")
    ids = torch.from_numpy(there.task.vocabulary.encode_words(WORDS))[:, None]
    weights = read_gates(there.model.stack[0], there.model.embedding(ids)).weights().mean((2, 3))
    assert [tick.get_text() for tick in axes.get_xticklabels()] == WORDS
    for word, line in enumerate(axes.get_lines()):
        assert list(line.get_xdata()) == list(range(word, len(WORDS)))
        assert list(line.get_ydata()) == pytest.approx(weights[word:, word].tolist())
    later = weights.diagonal(-5)  # of 11 words, after 5 further ones
    expected = {
        f"{WORDS[word]} (word {word + 1}): {later[word]:.2g}, at the end {weights[-1, word]:.2g}"
        for word in later.topk(3).indices.tolist()
    }
    assert {name for name in curves(axes) if not name.startswith("_")} == expected
    assert axes.get_title() == f"lrn: {there.task.show(there.predict(TEXT)[0])}"


def test_padding_that_is_read_has_a_curve(folder: Path):
    (axes,) = layer_plots.draw_decay([read_run(folder / "left")], "a voice").axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == [*["<pad>"] * 3, "a", "voice"]


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("lrn", None, "give the text that the model reads"),
        ("lrn", " ", "give the text that the model reads"),
        ("both", TEXT, "one layer of LRN in one direction"),
        ("alpha", TEXT, "one layer of LRN in one direction"),
    ],
)
def test_what_has_no_decay_is_answered(folder: Path, name: str, text: str | None, told: str):
    with pytest.raises(layer_plots.NothingToShow, match=told):
        layer_plots.draw_decay([read_run(folder / name)], text)


def test_both_are_drawn_where_asked_for(folder: Path, tmp_path: Path):
    command = ["plot", str(folder), "--what", "decay", "variance", "--text", TEXT, "--out", str(tmp_path)]
    assert cli.main(command) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"decay.png", "variance.png"}
