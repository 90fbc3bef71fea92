"""Dropouts, zoneout, weight drop, norms, residuals, projections: what each touches and what it leaves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers import each, identical, liven, randn, random_state, same, tensors
from torch import Tensor

import linnet

UNITS = list(linnet.UNITS.values())
ELEMENTWISE = [unit for unit in UNITS if unit(4, 4).first_cell.is_elementwise]
# Batch norm is another function in training.
ALIKE_IN_BOTH_MODES = [unit for unit in UNITS if unit is not linnet.LiGRU]
WITH_RECURRENT_MATRIX = [unit for unit in UNITS if unit not in ELEMENTWISE]
# Units whose projected output recurs; elsewhere the projection stands behind the layer.
PROJECTED_INSIDE = [linnet.LSTM, linnet.RAN]


@pytest.fixture(autouse=True)
def seeded():
    """Noise and initialisations are drawn the same way in every run, whatever ran before."""
    torch.manual_seed(0)


def over(units: list[Any]) -> Any:
    return pytest.mark.parametrize("unit", units, ids=lambda unit: unit.__name__)


def cell_weights(rnn: linnet.Recurrent, layer: int = 0) -> dict[str, Tensor]:
    """By their names without torch's _ih and _hh; the second bias of LSTM, GRU and RNN by its own."""
    own = {k: v for k, v in rnn.cells[layer].parameters_inside() if k != "recurrent.bias_hh"}
    return {k.removesuffix("_ih").replace("weight_hh", "weight"): v for k, v in own.items()}


@torch.no_grad()
def fill(rnn: linnet.Recurrent, layer: int = 0, **values: Tensor | float) -> None:
    """Set weights of a cell, with __ for the dot in their names, and all its others to 0."""
    for name, weight in cell_weights(rnn, layer).items():
        weight.copy_(torch.as_tensor(values.get(name.replace(".", "__"), 0.0)).expand_as(weight))


def see_through(unit: Any, size: int = 8, **options: Any) -> Any:
    """Two layers, the second of which is a window: `read` gives back what it was given to read."""
    rnn = liven(unit(size, size, 2, **options))
    fill(rnn, 1, **({} if unit is linnet.SRU else {"input__weight": torch.eye(size)}))
    return rnn


def read(rnn: linnet.Recurrent, x: Tensor) -> Tensor:
    """SRU with all products 0 is sqrt(3) / 2 x, and RNN with the identity as matrix is tanh(x)."""
    y, _ = rnn(x)
    return y / (3**0.5 / 2) if isinstance(rnn, linnet.SRU) else y.atanh()


# ---------------------------------------------------------------------------- dropout between layers


@over([linnet.SRU, linnet.RNN])
def test_variational_dropout_draws_one_mask_for_all_steps(unit: Any):
    rnn = see_through(unit, dropout=0.5, variational=True)
    x = randn(5, 4, 8)
    clean = read(rnn.eval(), x)
    first, second = (read(rnn.train(), x) for _ in range(2))
    dropped = first == 0
    assert (dropped == dropped[0]).all()
    assert 0 < dropped[0].double().mean() < 1
    same(first, torch.where(dropped, 0, 2 * clean))
    assert not torch.equal(dropped, second == 0)


@over([linnet.SRU, linnet.RNN])
def test_plain_dropout_draws_a_fresh_mask_at_each_step(unit: Any):
    rnn = see_through(unit, dropout=0.25)
    x = randn(5, 4, 8)
    clean = read(rnn.eval(), x)
    noisy = read(rnn.train(), x)
    dropped = noisy == 0
    same(noisy, torch.where(dropped, 0, clean / 0.75))
    assert all(not torch.equal(dropped[t], dropped[0]) for t in range(1, 5))


@pytest.mark.parametrize("variational", [False, True])
def test_the_rate_of_dropout_is_the_share_of_zeros(variational: bool):
    rnn = see_through(linnet.SRU, 100, dropout=0.3, variational=variational)
    noisy = read(rnn.train(), randn(1, 100, 100))
    assert (noisy == 0).double().mean() == pytest.approx(0.3, abs=0.02)


@over(ALIKE_IN_BOTH_MODES)
def test_there_is_no_dropout_behind_the_last_layer(unit: Any):
    rnn = liven(unit(3, 4, dropout=0.9))
    x = randn(4, 2, 3)
    identical(rnn.train()(x), rnn.eval()(x))


@over(ALIKE_IN_BOTH_MODES)
def test_no_noise_is_left_in_eval(unit: Any):
    noise = {"dropout": 0.5, "variational": True, "input_dropout": 0.5, "weight_drop": 0.5}
    if unit in WITH_RECURRENT_MATRIX:
        noise["state_dropout"] = 0.5
    noisy, plain = liven(unit(3, 4, 2, **noise)), liven(unit(3, 4, 2))
    x = randn(4, 2, 3)
    identical(noisy.eval()(x), plain(x))
    assert not torch.equal(noisy.train()(x)[0], plain(x)[0])


@over(UNITS)
def test_the_seed_decides_the_noise(unit: Any):
    rnn = liven(unit(3, 4, 2, dropout=0.5, input_dropout=0.3, weight_drop=0.3, zoneout=0.3)).train()
    x = randn(4, 2, 3)
    torch.manual_seed(1)
    first = rnn(x)
    torch.manual_seed(1)
    identical(rnn(x), first)


# ---------------------------------------------------------------------------- input dropout


def test_input_dropout_is_one_mask_over_time_on_what_the_matrix_reads():
    """y = tanh(m x): with the identity as matrix and nothing that recurs, the mask lies open."""
    rnn = liven(linnet.RNN(6, 6, input_dropout=0.5)).train()
    fill(rnn, input__weight=torch.eye(6))
    x = randn(5, 4, 6)
    y, _ = rnn(x)
    dropped = y == 0
    assert (dropped == dropped[0]).all()
    assert 0 < dropped[0].double().mean() < 1
    same(y, torch.where(dropped, 0, (2 * x).tanh()))


def test_the_skip_of_sru_sees_the_input_undropped():
    """With all products 0, h = (1 - r) alpha x, r = 1/2 and alpha = sqrt(3)."""
    rnn = liven(linnet.SRU(6, 6, input_dropout=0.9)).train()
    fill(rnn)
    x = randn(5, 4, 6)
    same(rnn(x)[0], 0.5 * 3**0.5 * x)


def test_each_layer_has_an_input_mask_of_its_own():
    """y = tanh(m_2 tanh(m_1 x)): what the first layer drops stays dropped, and the second drops more."""
    rnn = see_through(linnet.RNN, input_dropout=0.5).train()
    fill(rnn, 0, input__weight=torch.eye(8))
    x = randn(5, 64, 8)
    y, _ = rnn(x)
    assert (y == 0).double().mean() == pytest.approx(0.75, abs=0.06)
    same(y, torch.where(y == 0, 0, (2 * (2 * x).tanh()).tanh()))


# ---------------------------------------------------------------------------- state dropout


def test_state_dropout_is_one_mask_over_time_on_what_the_recurrent_matrix_reads():
    """h_t = tanh(m h_{t-1}): with the identity as recurrent matrix and no input, the mask lies open."""
    rnn = liven(linnet.RNN(3, 6, state_dropout=0.5)).train()
    fill(rnn, recurrent__weight=torch.eye(6))
    start = random_state(rnn, 4)
    y, _ = rnn(randn(3, 4, 3), start)
    dropped = y[0] == 0
    assert 0 < dropped.double().mean() < 1
    h = start[0]
    for y_t in y:
        h = torch.where(dropped, 0, (2 * h).tanh())
        same(y_t, h)


def test_state_dropout_leaves_the_state_itself_alone():
    """JANET with all products 0 is h_t = f h_{t-1}, whatever the matrices would read."""
    rnn = liven(linnet.JANET(3, 6, state_dropout=0.9)).train()
    fill(rnn)
    start = random_state(rnn, 4)
    same(rnn(randn(2, 4, 3), start)[1], start / 4)


@over(WITH_RECURRENT_MATRIX)
def test_state_dropout_works_for_every_unit_with_a_recurrent_matrix(unit: Any):
    rnn = liven(unit(3, 8, state_dropout=0.5)).train()
    start = random_state(rnn, 2)
    x = randn(4, 2, 3)
    assert not torch.equal(rnn(x, start)[0], rnn(x, start)[0])


@over(ELEMENTWISE)
def test_state_dropout_needs_a_recurrent_matrix(unit: Any):
    with pytest.raises(ValueError, match=f"state_dropout .* {unit.__name__} has no recurrent matrix"):
        unit(3, 4, state_dropout=0.5)


# ---------------------------------------------------------------------------- zoneout


def one_step(unit: Any, zoneout: float, **options: Any) -> tuple[Any, Any, Any, Any]:
    """A module, the state before, the state after a step without zoneout, and the input."""
    rnn = liven(unit(5, 40, zoneout=zoneout, **options))
    x, before = randn(1, 40, 5), random_state(rnn, 40)
    _, after = liven(unit(5, 40, **options))(x, before)
    return rnn, before, after, x


# The hard gate of SGU keeps channels by itself.
@over([unit for unit in UNITS if unit not in (linnet.QRNN, linnet.SGU)])
def test_zoneout_keeps_a_share_of_the_channels_exactly(unit: Any):
    rnn, before, after, x = one_step(unit, 0.3)
    _, zoned = rnn.train()(x, before)
    for old, new, got in zip(tensors(before), tensors(after), tensors(zoned), strict=True):
        kept = got == old
        same(torch.where(kept, old, new), got)
        assert kept.double().mean() == pytest.approx(0.3, abs=0.06)


@over(ALIKE_IN_BOTH_MODES)
def test_zoneout_is_the_mean_of_both_outside_training(unit: Any):
    rnn, before, after, x = one_step(unit, 0.3)
    _, zoned = rnn.eval()(x, before)
    for old, new, got in zip(tensors(before), tensors(after), tensors(zoned), strict=True):
        same(got, 0.3 * old + 0.7 * new)


@over([linnet.LRN, linnet.RAN, linnet.NRU, linnet.ATR, linnet.JANET, linnet.LSTM, linnet.GRU, linnet.RNN])
def test_an_output_that_is_the_state_is_zoned_too(unit: Any):
    rnn, before, _, x = one_step(unit, 0.3)
    y, zoned = rnn.train()(x, before)
    identical(y, zoned if isinstance(zoned, Tensor) else zoned.h)


def test_the_context_and_the_hidden_state_of_scrn_are_zoned_in_its_output():
    rnn, before, _, x = one_step(linnet.SCRN, 0.3)
    y, zoned = rnn.train()(x, before)
    identical(y, torch.cat([zoned.s, zoned.h], -1))


@pytest.mark.parametrize("pooling", ["f", "fo", "ifo"])
@pytest.mark.parametrize("training", [True, False])
def test_the_output_of_qrnn_reads_the_zoned_state(pooling: str, training: bool):
    """As the authors' mask on the forget gate does."""
    rnn, before, after, x = one_step(linnet.QRNN, 0.3, pooling=pooling)
    y, c = rnn.train(training)(x, before)
    if training:
        assert torch.where(c == before, before, after).sub(c).abs().max() < 1e-12
        assert (c == before).double().mean() == pytest.approx(0.3, abs=0.05)
    weights = cell_weights(rnn)
    gates = F.linear(x, weights["input.weight"], weights["input.bias"])
    o = torch.ones_like(c) if pooling == "f" else gates[..., 80:120].sigmoid()
    same(y, o * c)


def test_zoneout_draws_anew_at_each_step():
    rnn = liven(linnet.LRN(3, 50, zoneout=0.5)).train()
    y, _ = rnn(randn(6, 4, 3), random_state(rnn, 4))
    kept = y[1:] == y[:-1]
    assert kept.any(-1).all()
    assert all(not torch.equal(kept[t], kept[0]) for t in range(1, 5))


# ---------------------------------------------------------------------------- weight drop


def dropped_recurrence(rate: float = 0.5) -> tuple[Any, Tensor, Tensor]:
    """An RNN, its outputs from the unit vectors as states, and the matrix that the first step shows."""
    rnn = liven(linnet.RNN(3, 6, weight_drop=rate, second_bias=False)).train()
    with torch.no_grad():
        cell_weights(rnn)["input.weight"].zero_()
        cell_weights(rnn)["input.bias"].zero_()
    y, _ = rnn(randn(3, 6, 3), torch.eye(6, dtype=torch.double)[None])
    return rnn, y, y[0].atanh().T


def test_weights_are_dropped_for_a_whole_pass_and_scaled_up():
    rnn, y, seen = dropped_recurrence()
    stored = cell_weights(rnn)["recurrent.weight"]
    dropped = seen == 0
    assert 0 < dropped.double().mean() < 1
    same(seen, torch.where(dropped, 0, 2 * stored), atol=1e-11)
    same(y[1], (y[0] @ seen.T).tanh(), atol=1e-11)
    same(y[2], (y[1] @ seen.T).tanh(), atol=1e-11)


def test_gradients_reach_the_stored_weights_where_they_were_kept():
    rnn, y, seen = dropped_recurrence()
    stored = cell_weights(rnn)["recurrent.weight"]
    before = stored.detach().clone()
    y.sum().backward()
    assert torch.equal(stored.grad != 0, seen != 0)
    identical(stored.detach(), before)


@over(UNITS)
def test_dropped_weights_differ_between_passes(unit: Any):
    rnn = liven(unit(3, 8, 2, weight_drop=0.5)).train()
    x, state = randn(4, 2, 3), random_state(rnn, 2)
    assert not torch.equal(rnn(x, state)[0], rnn(x, state)[0])


@over([unit for unit in WITH_RECURRENT_MATRIX if unit is not linnet.EURNN])
def test_weight_drop_is_on_the_recurrent_matrices_unless_all_are_asked_for(unit: Any):
    """A step from a state of 0 shows none of the recurrent matrices of these units, or not only those."""
    recurrent = liven(unit(3, 8, weight_drop=0.5))
    everything = liven(unit(3, 8, weight_drop=0.5, weight_drop_on="all"))
    x = randn(1, 64, 3)
    of_input = [dropped_in(rnn, "input.weight", x) for rnn in (recurrent, everything)]
    assert of_input == [False, True]


@over([*ELEMENTWISE, linnet.EURNN])
@pytest.mark.parametrize("on", ["recurrent", "all"])
def test_weight_drop_is_on_the_input_matrix_of_units_without_another(unit: Any, on: str):
    assert dropped_in(liven(unit(3, 8, weight_drop=0.5, weight_drop_on=on)), "input.weight", randn(1, 64, 3))


def dropped_in(rnn: Any, name: str, x: Tensor) -> bool:
    """Whether entries of a weight are left out of a pass: the output does not depend on them."""
    y, _ = rnn.train()(x, random_state(rnn, x.shape[1]))
    (gradient,) = torch.autograd.grad(y.sin().sum(), cell_weights(rnn)[name])
    (clean,) = torch.autograd.grad(
        rnn.eval()(x, random_state(rnn, x.shape[1]))[0].sin().sum(), cell_weights(rnn)[name]
    )
    return bool(((gradient == 0) & (clean != 0)).any())


def test_vectors_and_biases_are_never_dropped():
    rnn = liven(linnet.SRU(3, 8, weight_drop=0.9, weight_drop_on="all")).train()
    y, _ = rnn(randn(4, 64, 3), random_state(rnn, 64))
    y.sin().sum().backward()
    vectors = [weight for weight in rnn.parameters() if weight.dim() == 1]
    assert len(vectors) == 3
    assert all((vector.grad != 0).all() for vector in vectors)


# ---------------------------------------------------------------------------- norms


def normed_by_hand(kind: str, z: Tensor, weights: dict[str, Tensor]) -> Tensor:
    """The authors' norms: over all gates jointly, before the bias, with 1e-8 under the root."""
    if kind == "layer":
        z = z - z.mean(-1, keepdim=True)
    z = z / (z.square().mean(-1, keepdim=True) + 1e-8).sqrt() * weights["input.norm.weight"]
    return z + weights["input.norm.bias"] if kind == "layer" else z


@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_norm_is_over_the_joint_projection_before_the_bias(kind: str):
    rnn = liven(linnet.LRN(3, 4, norm=kind))
    weights = cell_weights(rnn)
    x = randn(5, 2, 3)
    z = normed_by_hand(kind, x @ weights["input.weight"].T, weights) + weights["input.bias"]
    h = torch.zeros(2, 4, dtype=torch.double)
    y, _ = rnn(x)
    for t, (k, q, v) in enumerate(z_t.chunk(3, -1) for z_t in z):
        h = ((k + h).sigmoid() * v + (q - h).sigmoid() * h).tanh()
        same(y[t], h)


@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_norm_leaves_the_recurrent_product_alone(kind: str):
    rnn = liven(linnet.RNN(3, 4, norm=kind, second_bias=False))
    weights = cell_weights(rnn)
    x, h = randn(5, 2, 3), random_state(rnn, 2)[0]
    z = normed_by_hand(kind, x @ weights["input.weight"].T, weights) + weights["input.bias"]
    y, _ = rnn(x, h[None])
    for z_t, y_t in zip(z, y, strict=True):
        h = (z_t + h @ weights["recurrent.weight"].T).tanh()
        same(y_t, h)


@over(UNITS)
@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_every_unit_takes_every_norm_and_starts_it_at_one(unit: Any, kind: str):
    rnn = unit(3, 4, 2, norm=kind, prenorm=kind)
    norms = {k: v for k, v in rnn.named_parameters() if k.split(".")[-3:-2] == ["input"] and "norm" in k}
    assert all((v == float(k.endswith("weight"))).all() for k, v in norms.items())
    assert len(norms) == (8 if kind == "layer" else 4)
    assert rnn(torch.randn(4, 2, 3))[0].isfinite().all()


# What SRU skips by, and what is read out together with x, is x as it is.
@over([unit for unit in UNITS if unit is not linnet.SRU and not unit(4, 4).first_cell.reads_out])
@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_prenorm_is_the_norm_of_the_layers_input(unit: Any, kind: str):
    rnn, plain = liven(unit(3, 4, prenorm=kind)), liven(unit(3, 4))
    plain.load_state_dict({k: v for k, v in rnn.state_dict().items() if "prenorm" not in k})
    x, weights = randn(5, 2, 3), cell_weights(rnn)
    weight = weights["input.prenorm.weight"]
    if kind == "rms":
        normed = x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight
    else:
        normed = F.layer_norm(x, (3,), weight, weights["input.prenorm.bias"], 1e-5)
    same(rnn(x), plain(normed))


def test_the_skip_of_sru_sees_the_input_as_it_was_before_the_prenorm():
    """As in the authors' code; with all products 0, h = (1 - r) alpha x."""
    rnn = liven(linnet.SRU(6, 6, prenorm="layer"))
    fill(rnn)
    x = randn(5, 4, 6)
    same(rnn(x)[0], 0.5 * 3**0.5 * x)


# ---------------------------------------------------------------------------- residual


@over(UNITS)
def test_residual_adds_the_input_of_a_layer_to_its_output(unit: Any):
    """SCRN's output is [s; h]: its layers are as wide as their input with the context left out of it."""
    options = {"context_in_output": False} if unit is linnet.SCRN else {}
    rnn, plain = liven(unit(5, 5, residual=True, **options)), liven(unit(5, 5, **options))
    x = randn(4, 2, 5)
    y, state = plain(x)
    same(rnn(x), (y + x, state))


def test_residual_adds_in_every_layer_where_the_sizes_agree():
    rnn, plain = liven(linnet.GRU(3, 4, 3, residual=True)), liven(linnet.GRU(3, 4, 3))
    x = randn(4, 2, 3)
    layers = [linnet.GRU(size, 4, dtype=torch.double) for size in (3, 4, 4)]
    for number, layer in enumerate(layers):
        mine = {k: v for k, v in plain.state_dict().items() if k.endswith(f"_l{number}")}
        layer.load_state_dict({k.replace(f"_l{number}", "_l0"): v for k, v in mine.items()})
    first, _ = layers[0](x)
    second = layers[1](first)[0] + first
    same(rnn(x)[0], layers[2](second)[0] + second)


def test_residual_without_a_layer_of_equal_sizes_is_an_error():
    with pytest.raises(ValueError, match=r"residual=True .* sizes along the stack are \[3, 4\]"):
        linnet.LSTM(3, 4, residual=True)
    with pytest.raises(ValueError, match=r"sizes along the stack are \[4, 8\]"):
        linnet.LSTM(4, 4, bidirectional=True, residual=True)


# ---------------------------------------------------------------------------- projection


@over(UNITS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_proj_size_is_the_width_of_every_layers_output(unit: Any, bidirectional: bool):
    rnn = unit(3, 6, 2, bidirectional=bidirectional, proj_size=2)
    ways = 1 + bidirectional
    y, state = rnn(torch.randn(4, 5, 3))
    assert y.shape == (4, 5, 2 * ways)
    assert rnn.output_size == 2 * ways
    assert rnn.cells[-1].input_size == 2 * ways
    assert all(s.shape[:2] == (2 * ways, 5) for s in tensors(state))
    y, _ = rnn(torch.randn(4, 5, 3), state)
    assert y.shape == (4, 5, 2 * ways)


@over([unit for unit in UNITS if unit not in PROJECTED_INSIDE])
@pytest.mark.parametrize("bias", [True, False])
def test_proj_size_is_a_linear_layer_behind_the_unit(unit: Any, bias: bool):
    rnn, plain = liven(unit(3, 6, bias=bias, proj_size=2)), liven(unit(3, 6, bias=bias))
    last = {
        k.split(".")[-1]: v for k, v in rnn.named_parameters() if k.startswith("directions.0.projection.")
    }
    plain.load_state_dict({k: v for k, v in rnn.state_dict().items() if ".projection." not in k})
    assert set(last) == ({"weight", "bias"} if bias else {"weight"})
    x, state = randn(4, 2, 3), random_state(rnn, 2)
    y, final = plain(x, state)
    same(rnn(x, state), (F.linear(y, last["weight"], last.get("bias")), final))


@over(PROJECTED_INSIDE)
def test_the_projected_output_of_lstm_and_ran_is_the_state_that_recurs(unit: Any):
    rnn = liven(unit(3, 6, proj_size=2))
    y, state = rnn(randn(4, 5, 3))
    assert (state.h.shape, state.c.shape) == ((1, 5, 2), (1, 5, 6))
    identical(y[-1], state.h[0])


# ---------------------------------------------------------------------------- SRU's own dropout


def test_the_cell_dropout_of_sru_is_in_all_layers_but_the_last():
    """A single layer is no last one of several: it has the mask."""
    x = randn(4, 8, 8)
    for layers, masked in ((1, [True]), (2, [True, False]), (3, [True, True, False])):
        for layer in range(layers):
            # Only this layer has products; the others pass on a multiple of what they read.
            rnn = liven(linnet.SRU(8, 8, layers, cell_dropout=0.5)).train()
            for other in set(range(layers)) - {layer}:
                fill(rnn, other)
            assert torch.equal(rnn(x)[0], rnn(x)[0]) != masked[layer]


@pytest.mark.parametrize("on", ["state", "gate"])
def test_the_cell_dropout_of_sru_is_one_mask_over_time(on: str):
    """Where a channel is dropped, h is (1 - r) alpha x ("state") or alpha x ("gate")."""
    rnn = liven(linnet.SRU(6, 6, cell_dropout=0.5, cell_dropout_on=on))
    fill(rnn, input__weight=randn(18, 6, seed=4))
    rnn.cells[0].input.weight.data[12:] = 0.0  # r = 1/2
    x = randn(5, 4, 6)
    skip = 3**0.5 * x * (0.5 if on == "state" else 1)
    dropped = (rnn.train()(x)[0] - skip).abs() < 1e-12
    assert (dropped == dropped[0]).all()
    assert 0 < dropped[0].double().mean() < 1


def test_states_given_as_plain_tuples_take_part_in_all_of_this():
    rnn = liven(linnet.LSTM(3, 4, zoneout=0.5)).eval()
    state = random_state(rnn, 2)
    x = randn(4, 2, 3)
    identical(rnn(x, tuple(state)), rnn(x, each(Tensor.clone, state)))
