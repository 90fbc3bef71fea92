"""Truth: the sizes of the papers' language models, to the digits they print. Nothing is allocated."""

from __future__ import annotations

from typing import Any

import pytest

from linnet.models.language import LanguageModel, LanguageModelConfig


def count(vocabulary: int, unit: str, **given: Any) -> int:
    return LanguageModel(vocabulary, LanguageModelConfig(unit=unit, **given), device="meta").count()


@pytest.mark.parametrize(("size", "millions"), [(650, 17.24), (1500, 52.52)])
def test_ran_on_the_penn_treebank(size: int, millions: float):
    whole = count(10_000, "ran", embedding_size=size, hidden_size=size)
    assert round(whole / 1e6, 2) == millions


def test_ran_on_text8():
    """The paper counts the recurrent layers alone."""
    config = LanguageModelConfig(unit="ran", embedding_size=128, hidden_sizes=(1024, 1024, 2048))
    model = LanguageModel(27, config, device="meta")
    assert round(sum(weight.numel() for weight in model.layers.parameters()) / 1e6, 2) == 22.42


def test_ran_on_the_billion_words():
    sizes = {"embedding_size": 512, "hidden_size": 2048, "num_layers": 1, "unit_options": {"proj_size": 512}}
    config = LanguageModelConfig(unit="ran", softmax="adaptive", cutoffs=(4000, 40_000, 200_000), **sizes)
    model = LanguageModel(793_470, config, device="meta")
    assert sum(weight.numel() for weight in model.layers.parameters()) == 6_296_064


MIXTURE = {"embedding_size": 280, "hidden_sizes": (960, 960, 620), "softmax": "mixture", "tied": True}
LRN_RIVALS: dict[str, tuple[float, dict[str, Any]]] = {
    "lstm": (21.49, {"second_bias": False}),
    "gru": (17.47, {"form": "before"}),
    "atr": (9.45, {}),
    "sru": (12.59, {"skip": "matrix", "full_bias": True}),
    "lrn": (10.79, {}),
}


@pytest.mark.parametrize("unit", LRN_RIVALS)
def test_lrn_and_its_rivals_with_a_mixture_of_softmaxes(unit: str):
    millions, options = LRN_RIVALS[unit]
    assert round(count(10_000, unit, unit_options=options, **MIXTURE) / 1e6, 2) == millions


def test_lrn_to_the_last_parameter():
    assert count(10_000, "lrn", **MIXTURE) == 10_791_920


@pytest.mark.parametrize(
    ("tied", "hidden", "context", "millions"),
    [(True, 240, 40, 3.09), (False, 240, 40, 5.49), (True, 750, 120, 11.43), (False, 750, 120, 18.93)],
)
def test_scrn(tied: bool, hidden: int, context: int, millions: float):
    sizes = {"embedding_size": hidden, "hidden_size": hidden, "unit_options": {"context_size": context}}
    assert round(count(10_000, "scrn", tied=tied, **sizes) / 1e6, 2) == millions


def test_nru_on_characters():
    options = {"memory_size": 576, "num_heads": 4, "head_activation": "relu"}
    sizes = {"embedding_size": 200, "hidden_size": 1000, "num_layers": 1}
    assert count(50, "nru", unit_options=options, **sizes) == 2_152_450


@pytest.mark.parametrize(
    ("layers", "hidden", "rank", "embedded", "millions"),
    [(10, 1152, 0, 205, 37.1), (8, 3056, 512, 205, 47.1), (12, 2048, 512, 256, 48.8)],
)
def test_sru_on_enwik8(layers: int, hidden: int, rank: int, embedded: int, millions: float):
    sizes = {"embedding_size": embedded, "hidden_size": hidden, "num_layers": layers}
    options = {"rank": rank, "highway_bias": -3.0}
    assert round(count(205, "sru", unit_options=options, **sizes) / 1e6, 1) == millions
