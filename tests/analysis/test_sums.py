"""The state as a weighted sum of what was read, and how far states move, against recorded numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from golden_cases import Vectors, matching, of_cell, side_by_side
from helpers import liven, randn, same
from torch import Tensor

import linnet
from linnet.analysis.pace import changes, moves, rank_correlation, rarity
from linnet.analysis.sums import NotASum, arrow_lengths, arrows, gated_sum, has_gated_sum, sum_weights


def filled(rnn: Any, parameters: dict[str, Tensor]) -> Any:
    """The stack in float64 with these parameters."""
    rnn.double().load_state_dict({name: tensor.detach() for name, tensor in parameters.items()})
    return rnn


@pytest.mark.parametrize("path", matching("ran_weights_tanh", "ran_weights_identity"), ids=lambda p: p.stem)
def test_the_weights_and_arrows_of_ran(path: Path):
    v = Vectors(path)
    size = v["x"].shape[-1]

    def ours(key: str) -> dict[str, Tensor]:
        of_x, of_h = v[f"{key}.gates_w"].split([size, len(v[f"{key}.gates_w"]) - size])
        matrix = torch.cat([v[f"{key}.content_w"], of_x], 1).T
        return of_cell(
            {"input.weight": matrix, "input.bias": v[f"{key}.gates_b"], "recurrent.weight": of_h.T}
        )

    rnn = filled(linnet.RAN(size, v["s0.c"].shape[-1], activation=v.meta["g"]), ours("w"))
    x = v["x"].detach().requires_grad_()
    (values,) = linnet.record(rnn, x, (v["s0.h"][None], v["s0.c"][None]))
    for name, key in {
        "i": "i_seq",
        "f": "f_seq",
        "c": "c_seq",
        "h": "h_seq",
        "content": "content_seq",
    }.items():
        same(values[name], v[key])
    sums = sum_weights(values)
    same(sums.weights, v["weights"])
    same(sums.start, v["init_weight"])
    same(sums.weights.amax(-1), v["max_weight"])
    same(sums.rebuild(), v["c_seq"])
    same(arrows(sums.weights), v["arrow_strict"])
    same(arrows(sums.weights, inclusive=True), v["arrow_inclusive"])
    loss = (sums.weights * v["R"]).sum()
    same(loss, v["loss"])
    loss.backward()
    same(x.grad, v["grad.x"], atol=1e-10)
    found = {name: parameter.grad for name, parameter in rnn.named_parameters()}
    same(found, ours("grad"), atol=1e-10)


@pytest.mark.parametrize("path", matching("ran_weights_lstm_gru"), ids=lambda path: path.stem)
def test_the_weights_and_arrows_of_lstm_and_gru(path: Path):
    v = Vectors(path)
    for name, unit in (("lstm", linnet.LSTM), ("gru", linnet.GRU)):
        weights = {key.removeprefix(f"w.{name}."): t for key, t in v.tensors.items() if f"w.{name}." in key}
        rnn = unit(v["x"].shape[-1], v[f"{name}.weights"].shape[-1]).double()
        linnet.load_foreign(rnn, weights, "torch")
        start = (torch.zeros_like(v["lstm.c0"])[None], v["lstm.c0"][None]) if name == "lstm" else None
        (values,) = linnet.record(rnn, v["x"], start)
        sums = sum_weights(values)
        same(values["c" if name == "lstm" else "h"], v[f"{name}.{'c' if name == 'lstm' else 'h'}_seq"])
        same(sums.contents, v[f"{name}.content_seq"])
        same(sums.weights, v[f"{name}.weights"])
        same(arrows(sums.weights), v[f"{name}.arrow_strict"])
        if name == "gru":
            same(sums.start, v["gru.init_weight"])
            same(sums.weights.sum(1) + sums.start, torch.ones_like(sums.start))


SUMS = {
    "SRU": ("c", "f", ("sub", 1.0, "f"), "u"),
    "LRN": ("h", "f", "i", "v"),
    "RAN": ("c", "f", "i", "content"),
    "QRNN": ("c", "f", ("sub", 1.0, "f"), "z"),
    "LSTM": ("c", "f", "i", "content"),
    "GRU": ("h", "z", ("sub", 1.0, "z"), "n"),
    "JANET": ("h", "f", "i", "j"),
    "SCRN": ("s", 0.9, 1 - 0.9, "b"),
}


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_sum_is_found_in_the_step_and_rebuilds_the_state(name: str, bidirectional: bool):
    options = {"activation": "identity"} if name == "LRN" else {}
    rnn = liven(getattr(linnet, name)(3, 4, bidirectional=bidirectional, **options))
    for values in linnet.record(rnn, randn(6, 2, 3)):
        found = gated_sum(values.cell)
        assert found == (*SUMS[name], False)
        same(sum_weights(values).rebuild(), values[found.state])


def test_an_activation_around_the_sum_is_told():
    assert gated_sum(linnet.LRNCell(3, 4)).activated
    assert not gated_sum(linnet.LRNCell(3, 4, activation="identity")).activated


@pytest.mark.parametrize(
    "unit", [linnet.NRU, linnet.OLRN, linnet.RNN, linnet.StatisticalRU, linnet.CfC, linnet.LTC]
)
def test_units_without_a_gated_sum_say_so(unit: type[linnet.Recurrent]):
    with pytest.raises(NotASum, match=f"no state of {unit.__name__} is a sum"):
        gated_sum(unit(3, 4).first_cell)
    (values,) = linnet.record(linnet.SRU(3, 4, zoneout=0.1), torch.zeros(2, 1, 3))
    with pytest.raises(NotASum, match="zoneout"):
        sum_weights(values)


def test_arrows_point_back_and_are_counted_by_length():
    weights = torch.zeros(3, 3, 1, 2)
    weights[1, 0, 0, 1], weights[2, 0, 0, 0], weights[2, 1, 0, 1], weights[2, 2] = 0.1, 0.6, 0.5, 0.9
    assert arrows(weights).tolist() == [[-1], [0], [0]]
    assert arrows(weights, inclusive=True).tolist() == [[0], [0], [2]]
    assert arrow_lengths(arrows(weights)) == {1: 1, 2: 1}


# ------------------------------------------------------------------------------------------ pace


@pytest.mark.parametrize("path", matching("scrn_deltas"), ids=lambda path: path.stem)
def test_how_far_the_states_of_scrn_move(path: Path):
    v = Vectors(path)
    context, hidden = v["l0_s"].shape[-1], v["l0_h"].shape[-1]
    rnn = linnet.SCRN(v["x"].shape[-1], hidden, 2, context_size=context, alpha=v.meta["alpha"])
    parameters = {}
    for layer in range(2):
        own = {
            "input.weight": side_by_side(v, f"l{layer}_B", f"l{layer}_A"),
            "input.bias": v[f"w.l{layer}_b"],
            "context.weight": v[f"w.l{layer}_P"].T,
            "recurrent.weight": v[f"w.l{layer}_R"].T,
        }
        parameters |= {
            name.replace("directions.0", f"directions.{layer}"): t for name, t in of_cell(own).items()
        }
    for layer, values in enumerate(linnet.record(filled(rnn, parameters), v["x"])):
        found = moves(values)
        same(values["s"], v[f"l{layer}_s"])
        same(found["s"] * context, v[f"l{layer}_delta_s"])
        same(found["h"] * hidden, v[f"l{layer}_delta_h"])
        same(found["s h"] * (context + hidden), v[f"l{layer}_delta_sh"])


def test_changes_of_a_memory_are_what_its_heads_write_and_erase():
    (values,) = linnet.record(liven(linnet.NRU(3, 5, memory_size=4)), randn(6, 2, 3))
    same(changes(values, "m"), (values["written"] - values["erased"]).mean(-2))


def test_rank_correlation_shares_ranks_of_equal_values():
    # By hand: the ranks are 1, 2.5, 2.5, 4 and 1, 3, 2, 4.
    found = rank_correlation(torch.tensor([0.1, 5.0, 5.0, 9.0]), torch.tensor([1.0, 3.0, 2.0, 4.0]))
    assert found == pytest.approx(4.5 / (4.5 * 5) ** 0.5)
    assert rank_correlation(torch.arange(5.0), -(torch.arange(5.0) ** 3)) == pytest.approx(-1)


def test_rarity_of_words():
    counts = {"the": 3, "linnet": 1}
    same(rarity(counts, ["the", "linnet", "owl"]), torch.tensor([4 / 3, 4, 4]).log(), atol=1e-6)


@pytest.mark.parametrize("name", linnet.UNITS)
def test_the_search_answers_for_every_unit(name: str):
    """Also of HGRN's second layer, whose bounds are not a number for each channel."""
    unit = linnet.UNITS[name](4, 4, num_layers=2)
    assert has_gated_sum(unit.cells[-1]) in (True, False)
