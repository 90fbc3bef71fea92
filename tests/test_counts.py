"""The papers' parameter counts: the recurrent part counted on our units, what stands around it by formula."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn

import linnet
from linnet.models.classifier import Classifier, ClassifierConfig


def count(*modules: nn.Module) -> int:
    return sum(parameter.numel() for module in modules for parameter in module.parameters())


def layers(unit: Any, *sizes: int, **options: Any) -> list[linnet.Recurrent]:
    """A stack whose layers differ in size: one module for each step from a size to the next."""
    return [unit(before, after, **options, device="meta") for before, after in pairwise(sizes)]


def linear(before: int, after: int, bias: bool = True) -> int:
    return before * after + after * bias


# ---------------------------------------------------------------------------- RAN


def test_ran_penn_treebank():
    """Table 1: 4.23M and, with 1500 units, 22.51M (printed 22.52M: two biases a gate, as in Lua)."""
    medium, large = (linnet.RAN(size, size, 2, device="meta") for size in (650, 1500))
    assert count(medium) == 4_227_600
    assert count(large) == 22_506_000
    assert count(medium) + 2 * 10_000 * 650 + 10_000 == 17_237_600
    assert count(large) + 2 * 10_000 * 1500 + 10_000 == 52_516_000


def test_ran_and_lstm_differ_as_the_paper_says():
    """Section 2.2, without biases: 4 h h + 4 h d against 2 h h + 3 h d."""
    h, d = 7, 5
    assert count(linnet.LSTM(d, h, bias=False)) == 4 * h * h + 4 * h * d
    assert count(linnet.RAN(d, h, bias=False)) == 2 * h * h + 3 * h * d


def test_lstm_penn_treebank():
    """Table 1: 6.77M; 36.02M has a second bias a gate."""
    assert round(count(linnet.LSTM(650, 650, 2, second_bias=False, device="meta")) / 1e6, 2) == 6.77
    assert round(count(linnet.LSTM(1500, 1500, 2, device="meta")) / 1e6, 2) == 36.02


def test_ran_billion_words():
    """Table 2: 6.30M, the projection with its bias."""
    assert count(linnet.RAN(512, 2048, proj_size=512, device="meta")) == 6_296_064


def test_ran_text8():
    assert round(count(*layers(linnet.RAN, 128, 1024, 1024, 2048)) / 1e6, 2) == 22.42


def test_the_path_from_lstm_to_ran_ends_at_the_size_of_ran():
    """Section 4.2: without the output gate, and with linear content."""
    halfway = linnet.LSTM(5, 7, output_gate=False)
    arrived = linnet.LSTM(5, 7, output_gate=False, content="linear")
    assert count(linnet.LSTM(5, 7)) > count(halfway) > count(arrived) == count(linnet.RAN(5, 7))


# ---------------------------------------------------------------------------- NRU


def test_nru():
    """Copying, permuted MNIST, characters (with an embedding), each with its output layer."""
    copying = linnet.NRU(10, 80, memory_size=64, num_heads=4)
    images = linnet.NRU(1, 212, memory_size=256, num_heads=4)
    characters = linnet.NRU(200, 1000, memory_size=576, num_heads=4, device="meta")
    assert count(copying) + linear(80, 9) == 23_569
    assert count(images) + linear(212, 10) == 165_554
    assert 50 * 200 + count(characters) + linear(1000, 50) == 2_152_450


def test_nru_defaults_are_the_copying_task():
    assert count(linnet.NRU(10, 80)) == count(linnet.NRU(10, 80, memory_size=64, num_heads=4))


def test_lstm_with_peepholes_copying():
    assert count(linnet.LSTM(10, 70, peepholes=True, second_bias=False)) + linear(70, 9) == 23_529


def test_eurnn_permuted_mnist():
    assert count(linnet.EURNN(1, 1024)) + linear(1024, 10) == 17_418


STATISTICS = {"statistics_size": 55, "summary_size": 16}


@pytest.mark.parametrize(
    ("unit", "size", "options"),
    [
        (linnet.RNN, 143, {"layer_norm": True}),
        (linnet.LSTM, 70, {"peepholes": True}),
        (linnet.GRU, 82, {"form": "before"}),
        (linnet.JANET, 101, {}),
        (linnet.StatisticalRU, 60, STATISTICS),
        (linnet.NRU, 80, {}),
    ],
)
def test_rivals_of_nru_have_about_23500_parameters_in_copying(unit: Any, size: int, options: dict):
    assert count(unit(10, size, **options)) + linear(size, 9) == pytest.approx(23_500, abs=500)


@pytest.mark.parametrize(
    ("unit", "size", "options"),
    [
        (linnet.RNN, 400, {"layer_norm": True, "second_bias": False}),
        (linnet.LSTM, 200, {"peepholes": True}),
        (linnet.GRU, 232, {"form": "before"}),
        (linnet.JANET, 283, {}),
        (linnet.StatisticalRU, 150, {"statistics_size": 155, "summary_size": 50}),
        (linnet.NRU, 212, {"memory_size": 256}),
    ],
)
def test_rivals_of_nru_have_about_165000_parameters_in_permuted_mnist(unit: Any, size: int, options: dict):
    assert count(unit(1, size, **options)) + linear(size, 10) == pytest.approx(165_000, abs=1_000)


@pytest.mark.parametrize(
    ("unit", "size", "options"),
    [
        (linnet.LSTM, 630, {"peepholes": True}),
        (linnet.GRU, 750, {"form": "before"}),
        (linnet.JANET, 930, {}),
        (linnet.NRU, 1000, {"memory_size": 576}),
    ],
)
def test_rivals_of_nru_have_about_2_15m_parameters_on_characters(unit: Any, size: int, options: dict):
    total = 50 * 200 + count(unit(200, size, **options, device="meta")) + linear(size, 50)
    assert total == pytest.approx(2_150_000, abs=40_000)


# ---------------------------------------------------------------------------- SRU


# Table 1 with word vectors of 300 and of 50: unit, options, layers, sizes.
CLASSIFIERS: dict[str, tuple[dict[str, Any], int, int]] = {
    "SRU 2": ({"unit": "sru", "num_layers": 2}, 204_034, 76_034),
    "SRU 4": ({"unit": "sru", "num_layers": 4}, 303_362, 175_362),
    "SRU 8": ({"unit": "sru", "num_layers": 8}, 502_018, 374_018),
    "LSTM": ({"unit": "lstm"}, 352_514, 224_514),
    "CNN": ({"unit": "cnn", "hidden_size": 100}, 360_902, 60_902),
    "QRNN": ({"unit": "qrnn"}, 165_378, 69_378),
    "QRNN+highway": ({"unit": "qrnn", "unit_options": {"highway": True}}, 203_778, 75_778),
}


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_sru_classification(name: str):
    given, *totals = CLASSIFIERS[name]
    for size, total in zip((300, 50), totals, strict=True):
        config = ClassifierConfig(**{"hidden_size": 128, "tuned": "none", **given, "embedding_size": size})
        assert Classifier(1000, 2, config, device="meta").count() == total
    assert count(nn.LSTM(300, 128, 2)) + linear(128, 2) == 352_514


def test_sru_ablations_lose_what_they_leave_out():
    """Table 5: the vectors v; nothing for alpha; the fourth matrix of the first layer."""
    full = count(linnet.SRU(300, 128, 2))
    assert full - count(linnet.SRU(300, 128, 2, recurrent_gates=False)) == 2 * 2 * 128
    assert full == count(linnet.SRU(300, 128, 2, rescale=False))
    assert full - count(linnet.SRU(300, 128, 2, highway=False)) == 300 * 128


def question_answering(encoders: int, wide: int) -> int:
    """The reader around two encoders of outputs `wide`: aligned question, tags, summary, start and end."""
    tags = 56 * 56 + 19 * 19
    return encoders + linear(300, 300) + tags + linear(wide, 1) + 2 * linear(wide, wide)


@pytest.mark.parametrize(("depth", "millions"), [(3, 2.02), (4, 2.42), (6, 3.21)])
def test_sru_question_answering(depth: int, millions: float):
    """Document: a word, its aligned question, 4 features, 56 and 19 dimensions of tags."""
    sizes = (300 + 300 + 4 + 56 + 19, 300)
    encoders = count(*(linnet.SRU(size, 128, depth, bidirectional=True) for size in sizes))
    assert round(question_answering(encoders, 256) / 1e6, 2) == millions


def test_lstm_question_answering():
    """Chen et al. (2017): 3 layers, whose outputs are put side by side; two biases a gate."""
    encoders = count(*(linnet.LSTM(size, 128, 3, bidirectional=True) for size in (679, 300)))
    assert round(question_answering(encoders, 3 * 256) / 1e6, 2) == 4.13


@pytest.mark.parametrize(
    ("depth", "size", "rank", "embedded", "millions"),
    [
        (10, 1152, 0, 205, "37.1"),
        (6, 1536, 0, 205, "37"),
        (8, 1312, 0, 205, "37.6"),
        (6, 3264, 512, 205, "37"),
        (8, 3056, 512, 205, "47.1"),
        (12, 2048, 512, 256, "48.8"),
    ],
)
def test_sru_enwik8(depth: int, size: int, rank: int, embedded: int, millions: str):
    """Table 4: 205 bytes; a first layer narrower than the rank is left unprojected, as the authors do."""
    rnn = linnet.SRU(embedded, size, depth, rank=rank, highway_bias=-3.0, device="meta")
    total = 205 * embedded + count(rnn) + linear(size, 205)
    assert f"{total / 1e6:.{1 if '.' in millions else 0}f}" == millions


# ---------------------------------------------------------------------------- LRN

# Each rival as the LRN authors count it: one bias a gate, ATR two, SRU four products with their biases.
RIVALS: dict[str, tuple[Any, dict[str, Any]]] = {
    "LSTM": (linnet.LSTM, {"second_bias": False}),
    "GRU": (linnet.GRU, {"form": "before"}),
    "ATR": (linnet.ATR, {}),
    "SRU": (linnet.SRU, {"skip": "matrix", "full_bias": True}),
    "LRN": (linnet.LRN, {}),
}
# These two carry a cell state beside h, for which a decoder needs a start of its own.
TWO_STATES = ("LSTM", "SRU")


def recurrent(unit: str, cells: list[tuple[int, int]]) -> int:
    """Cells from (input, hidden) sizes."""
    kind, options = RIVALS[unit]
    return sum(count(kind(*sizes, **options, device="meta")) for sizes in cells)


def mixture_of_softmaxes(vocabulary: int, embedded: int, last: int, experts: int) -> int:
    """Everything but the recurrent layers; the decoder is tied to the embedding."""
    decoder = vocabulary * embedded + vocabulary
    return decoder + linear(last, experts * embedded) + linear(last, experts, bias=False)


@pytest.mark.parametrize(
    ("unit", "total"),
    [("LSTM", 21.49), ("GRU", 17.47), ("ATR", 9.45), ("SRU", 12.59), ("LRN", 10.79)],
)
def test_lrn_language_models(unit: str, total: float):
    """Table 5: layers of 960, 960 and 620 between embeddings of 280 and 15 experts."""
    cells = [(280, 960), (960, 960), (960, 620)]
    whole = recurrent(unit, cells) + mixture_of_softmaxes(10_000, 280, 620, 15)
    assert round(whole / 1e6, 2) == total


def test_lrn_language_model_to_the_last_parameter():
    cells = [(280, 960), (960, 960), (960, 620)]
    assert recurrent("LRN", cells) + mixture_of_softmaxes(10_000, 280, 620, 15) == 10_791_920


# Tables 1, 2, 4 and 6: the cells of each model and the whole model's size. The rest of a model is the same
# whatever the unit, so differences between rows are differences between cells.
TASKS: dict[str, tuple[list[tuple[int, int]], float, dict[str, float], int]] = {
    "inference": (
        # Two ways over the premise, a conditional pair on the hypothesis, two ways over each again.
        [(364, 300)] * 2 + [(364, 300), (600, 300)] + [(600, 300)] * 2 + [(300, 300)] * 2,
        1e6,
        {"LSTM": 8.36, "GRU": 6.41, "ATR": 2.87, "SRU": 5.48, "LRN": 4.25},
        # The hypothesis starts from what the premise ended with; a second state starts by a map of its own.
        linear(600, 300),
    ),
    "documents": (
        [(332, 64)] * 2,
        1e3,
        {"LSTM": 227, "GRU": 176, "ATR": 74, "SRU": 194, "LRN": 151},
        0,
    ),
    "questions": (
        [(size, 75) for size in (500, 150, 150, 900, 300)] * 2,
        1e6,
        {"LSTM": 2.67, "GRU": 2.31, "ATR": 1.59, "SRU": 2.44, "LRN": 2.14},
        0,
    ),
    "names": (
        [(25, 25)] * 2 + [(150, 100)] * 2,
        1e3,
        {"LSTM": 245, "GRU": 192, "ATR": 87, "SRU": 161, "LRN": 129},
        0,
    ),
}


@pytest.mark.parametrize("unit", ["LSTM", "GRU", "ATR", "SRU"])
@pytest.mark.parametrize("task", TASKS)
def test_rivals_differ_from_lrn_by_what_the_tables_say(task: str, unit: str):
    """Both rows are rounded: they may be off by half a digit each."""
    cells, scale, printed, second_state = TASKS[task]
    more = recurrent(unit, cells) - recurrent("LRN", cells) + second_state * (unit in TWO_STATES)
    digit = 1 if scale == 1e3 else 0.01
    assert more / scale == pytest.approx(printed[unit] - printed["LRN"], abs=1.001 * digit)


@pytest.mark.parametrize(
    ("unit", "total", "second_biases"),
    [
        ("LSTM", 222_566, 2 * 4 * 64),
        ("GRU", 171_622, 2 * 3 * 64),
        ("ATR", 69_734, 0),
        ("SRU", 189_542, 0),
        ("LRN", 146_662, 0),
    ],
)
def test_lrn_documents(unit: str, total: int, second_biases: int):
    """Table 2 without the 32 parameters of each character; LSTM and GRU have one bias for each gate here."""
    config = ClassifierConfig(
        unit=unit.lower(),
        unit_options=RIVALS[unit][1],
        inputs="both",
        tuned="special",
        embedding_size=300,
        hidden_size=64,
        num_layers=1,
        bidirectional=True,
        pooling="attentive",
    )
    model = Classifier(5000, 2, config, characters=130, device="meta")
    assert model.count() - 32 * 130 == total - second_biases


@pytest.mark.parametrize(
    ("unit", "millions"), [(linnet.GRU, 206), (linnet.ATR, 122), (linnet.LRN, 143), (linnet.OLRN, 164)]
)
def test_lrn_translation(unit: Any, millions: int):
    """Table 3: 20 cells of 1024 (6 encoder and 6 decoder layers), no biases; the rest is the same for all."""
    options = {"form": "before"} if unit is linnet.GRU else {}
    cells = [
        20 * count(kind(1024, 1024, bias=False, device="meta", **o))
        for kind, o in ((unit, options), (linnet.LRN, {}))
    ]
    assert (cells[0] - cells[1]) / 1e6 == pytest.approx(millions - 143, abs=1)


# ---------------------------------------------------------------------------- SCRN


@pytest.mark.parametrize(
    ("hidden", "context", "untied", "tied"), [(240, 40, 5.49, 3.09), (750, 120, 18.93, 11.43)]
)
def test_scrn_language_models(hidden: int, context: int, untied: float, tied: float):
    """Two layers, words as wide as h; tied, h is decoded by the embedding and s by a matrix of its own."""
    rnn = linnet.SCRN(hidden, hidden, 2, context_size=context, device="meta")
    vocabulary = 10_000
    embedding, output = vocabulary * hidden, linear(hidden + context, vocabulary)
    assert round((embedding + count(rnn) + output) / 1e6, 2) == untied
    assert round((count(rnn) + output) / 1e6, 2) == tied


def test_the_default_context_of_scrn_is_a_sixth():
    assert count(linnet.SCRN(240, 240, 2)) == count(linnet.SCRN(240, 240, 2, context_size=40))


# ---------------------------------------------------------------------------- formulas


D, H = 5, 12
FORMULAS: dict[str, tuple[Any, int]] = {
    "SRU": (linnet.SRU(D, H), 4 * D * H + 4 * H),
    "SRU square": (linnet.SRU(H, H), 3 * H * H + 4 * H),
    "LRN": (linnet.LRN(D, H), 3 * D * H + 3 * H),
    "OLRN": (linnet.OLRN(D, H), 4 * D * H + 4 * H),
    "GLRN": (linnet.GLRN(D, H), 2 * D * H + 2 * H),
    "ELRN": (linnet.ELRN(D, H), D * H + H),
    "RAN": (linnet.RAN(D, H), 3 * D * H + 2 * H * H + 2 * H),
    "RAN reduced": (linnet.RAN(H, H, reduced=True), 4 * H * H + 2 * H),
    "NRU": (linnet.NRU(D, H), (D + H + 64) * H + H + (H + 64 + 1) * (2 * 4 + 2 * 2 * 16)),
    "SCRN": (linnet.SCRN(D, H), D * 2 + D * H + 2 * H + H * H + H),
    "ATR": (linnet.ATR(D, H), D * H + H * H + 2 * H),
    "QRNN": (linnet.QRNN(D, H), 3 * D * H + 3 * H),
    "QRNN window 2": (linnet.QRNN(D, H, window=2), 6 * D * H + 3 * H),
    "JANET": (linnet.JANET(D, H), 2 * (D * H + H * H + H)),
    "LSTM": (linnet.LSTM(D, H), 4 * (D * H + H * H + 2 * H)),
    "GRU": (linnet.GRU(D, H), 3 * (D * H + H * H + 2 * H)),
    "GRU before": (linnet.GRU(D, H, form="before"), 3 * (D * H + H * H + H)),
    "RNN": (linnet.RNN(D, H), D * H + H * H + 2 * H),
    "StatisticalRU": (linnet.StatisticalRU(D, H), (5 * H + 1) * 4 + (D + 4 + 1) * H + (5 * H + 1) * H),
    "EURNN": (linnet.EURNN(D, 16), D * 16 + 4 * 8 + 16),
    "GORU": (linnet.GORU(D, 16), 3 * D * 16 + 2 * 16 * 16 + 4 * 8 + 3 * 16),
    "HGRN": (linnet.HGRN(D, H), 3 * D * H + H * H + 5 * H),
    "LRU": (linnet.LRU(D, H), 2 * D * H + 2 * H * H + 3 * H + D * H),
    "LRU square": (linnet.LRU(H, H), 4 * H * H + 4 * H),
    "LinOSS": (linnet.LinOSS(D, H), 2 * D * H + 2 * H * H + 2 * H + D * H),
    "CfC": (linnet.CfC(D, H), (D + H + 1) * 128 + 4 * 129 * H),
    "LTC": (linnet.LTC(D, H), 4 * H * H + 4 * D * H + 3 * H + 2 * D + 2 * H),
    "LTC with 3 motors": (linnet.LTC(D, H, motors=3), 4 * H * H + 4 * D * H + 3 * H + 2 * D + 2 * 3),
    "LiGRU": (linnet.LiGRU(D, H), 2 * (D * H + H * H + 2 * H)),
    "MinGRU": (linnet.MinGRU(D, H), 2 * D * H + 2 * H),
    "MinGRU highway": (linnet.MinGRU(H, H, highway=True), 3 * H * H + 3 * H),
    "MinLSTM": (linnet.MinLSTM(D, H), 3 * D * H + 3 * H),
    "IndRNN": (linnet.IndRNN(D, H), D * H + 2 * H),
    "MGU": (linnet.MGU(D, H), 2 * (D * H + H * H + H)),
    "MinimalRNN": (linnet.MinimalRNN(D, H), D * H + 2 * H * H + 2 * H),
    "SGU": (linnet.SGU(D, H), 2 * (D * H + H * H + H)),
    "SGU deep": (linnet.SGU(D, H, deep=True), 2 * (D * H + H * H + H) + H * H),
    "FastRNN": (linnet.FastRNN(D, H), H * (D + H + 1) + 2),
    "FastRNN low rank": (linnet.FastRNN(D, H, rank=2, recurrent_rank=3), 2 * (D + H) + 3 * 2 * H + H + 2),
    "FastGRNN": (linnet.FastGRNN(D, H), H * (D + H + 2) + 2),
    "FastGRNN low rank": (linnet.FastGRNN(D, H, rank=2, recurrent_rank=3), 2 * (D + H) + 6 * H + 2 * H + 2),
    "CoRNN": (linnet.CoRNN(D, H), H * (D + 2 * H + 1)),
    "UnICORNN": (linnet.UnICORNN(D, H), H * (D + 3)),
    "LEM": (linnet.LEM(D, H), 4 * H * (D + H + 2)),
    "RGLRU": (linnet.RGLRU(D, H), 3 * D * H + 3 * H),
    "RGLRU square": (linnet.RGLRU(H, H, heads=4), 2 * (H * H // 4 + H) + H),
    "SLSTM": (linnet.SLSTM(D, H, heads=4), 4 * D * H + 4 * H * H // 4 + 4 * H),
}


@pytest.mark.parametrize(("rnn", "formula"), FORMULAS.values(), ids=FORMULAS.keys())
def test_a_layer_has_the_parameters_of_its_formula(rnn: linnet.Recurrent, formula: int):
    assert count(rnn) == formula


def test_every_unit_has_a_formula():
    assert {type(rnn) for rnn, _ in FORMULAS.values()} == set(linnet.UNITS.values())


def test_buffers_are_no_parameters_and_are_not_saved():
    """What is computed from the sizes needs no place in a checkpoint."""
    for unit in linnet.UNITS.values():
        rnn = unit(D, H)
        if unit is linnet.LiGRU:  # the running means of batch norm are learned
            rnn = unit(D, H, normalization="layer")
        assert set(rnn.state_dict()) == {name for name, _ in rnn.named_parameters()}
        assert all(isinstance(tensor, torch.Tensor) for tensor in rnn.state_dict().values())
