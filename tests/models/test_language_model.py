"""The language model: every unit in it, streaming, its dropouts and penalties, its starts and its answers."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from helpers import identical, liven, same, tensors
from torch import Tensor

import linnet
from linnet.layers.penalties import activation_penalty, sobolev_penalty, temporal_penalty
from linnet.models.config import DROPOUTS, INITS
from linnet.models.language import (
    LanguageModel,
    LanguageModelConfig,
    detach,
    hidden_size_for,
    with_hidden_size,
)

V, T, B = 13, 6, 3


def some_tokens(steps: int = T, seed: int = 0) -> Tensor:
    return torch.randint(0, V, (steps, B), generator=torch.Generator().manual_seed(seed))


def small(unit: str = "lstm", **given: Any) -> LanguageModelConfig:
    return LanguageModelConfig(unit=unit, **{"embedding_size": 8, "hidden_size": 8, **given})


def make(unit: str = "lstm", **given: Any) -> LanguageModel:
    return liven(LanguageModel(V, small(unit, **given))).eval()


SOFTMAXES: dict[str, dict[str, Any]] = {
    "full": {},
    "tied": {"tied": True},
    "mixture": {"softmax": "mixture", "experts": 2, "tied": True},
    "adaptive": {"softmax": "adaptive", "cutoffs": (5,)},
}


# ------------------------------------------------------------------------------------------- laws


@pytest.mark.parametrize("unit", linnet.UNITS)
def test_every_unit_makes_a_language_model(unit: str):
    model, tokens, targets = make(unit), some_tokens(), some_tokens(seed=1)
    parts = model.loss(tokens, targets)
    log_p, _ = model.log_probs(tokens)
    picked = log_p.gather(-1, targets[..., None])
    same(parts.objective, -picked.mean())
    same(parts.nll, -picked.sum().detach())
    assert parts.count == T * B
    parts.objective.backward()
    assert all(weight.grad is not None for weight in model.parameters())


@pytest.mark.parametrize("kind", SOFTMAXES)
@pytest.mark.parametrize("unit", ["lstm", "scrn", "sru", "nru"])
def test_streaming_equals_running(unit: str, kind: str):
    model, tokens = make(unit, **SOFTMAXES[kind]), some_tokens()
    log_p, final = model.log_probs(tokens)
    state = None
    for t in range(T):
        logits, state = model.step_logits(tokens[t], state)
        same(logits if kind == "mixture" else torch.log_softmax(logits, -1), log_p[t])
    for mine, theirs in zip(state, final, strict=True):
        same(tensors(mine), tensors(theirs))


def test_windows_that_follow_each_other_are_one_text():
    model, tokens, targets = make("ran"), some_tokens(), some_tokens(seed=1)
    whole = model.loss(tokens, targets)
    first = model.loss(tokens[:2], targets[:2])
    second = model.loss(tokens[2:], targets[2:], first.state)
    same(first.nll + second.nll, whole.nll)
    same(tuple(second.state[1]), tuple(whole.state[1]))


def test_the_state_between_windows_has_no_graph():
    parts = make("ran").loss(some_tokens(), some_tokens())
    assert not any(t.requires_grad for layer in parts.state for t in layer)
    assert isinstance(parts.state[0], linnet.RANCell.State)
    assert detach(None) is None


def test_targets_that_are_not_counted_change_nothing():
    model, tokens, targets = make(), some_tokens(), some_tokens(seed=1)
    targets[2:, 1] = -100
    parts = model.loss(tokens, targets)
    log_p, _ = model.log_probs(tokens)
    counted = targets != -100
    same(parts.nll, -log_p.gather(-1, targets.clamp(min=0)[..., None])[..., 0][counted].sum().detach())
    assert parts.count == int(counted.sum())


# ----------------------------------------------------------------------------------------- layers


def test_layers_may_have_sizes_of_their_own():
    model = make("lrn", hidden_sizes=(5, 9, 4))
    assert [layer.hidden_size for layer in model.layers] == [5, 9, 4]
    encoded = model(some_tokens())
    assert [y.shape[-1] for y in encoded.layers] == [5, 9, 4]
    assert encoded.output.shape == (T, B, 4)


@pytest.mark.parametrize(
    "unit_options", [{}, {"context_in_output": False}], ids=["s and h", "h alone at the end"]
)
def test_layers_are_those_of_the_stack(unit_options: dict[str, Any]):
    """What a unit does by its place in a stack, it does here."""
    model = make("scrn", num_layers=3, unit_options=unit_options)
    rnn = linnet.SCRN(8, 8, 3, **unit_options).double().eval()
    rnn.load_state_dict(
        {
            f"directions.{layer}.{name}": weight
            for layer, one in enumerate(model.layers)
            for name, weight in one.directions[0].state_dict().items()
        }
    )
    same(model(some_tokens()).output, rnn(model.embedding(some_tokens()))[0])


def test_the_last_sru_of_several_has_no_cell_dropout():
    model = make("sru", unit_options={"cell_dropout": 0.5}, num_layers=3)
    assert [layer.first_cell.cell_dropout for layer in model.layers] == [0.5, 0.5, 0.0]


def test_words_may_be_one_hot():
    model = make("scrn", embedding_size=0)
    assert model.embedding is None
    assert model.layers[0].input_size == V
    assert model.loss(some_tokens(), some_tokens()).objective > 0


def test_the_state_may_start_from_another_value():
    tokens = some_tokens()
    started, plain = make("scrn", initial_state=0.1), make("scrn")
    same(started(tokens).output, plain(tokens, started.initial_state(B)).output)
    assert (started(tokens).output - plain(tokens).output).abs().max() > 1e-3


def test_the_last_output_may_be_projected():
    model = make("lstm", hidden_size=11, projection=8, tied=True)
    encoded = model(some_tokens())
    assert encoded.output.shape == (T, B, 8)
    same(encoded.output, model.projection(encoded.raw))


# --------------------------------------------------------------------------------------- dropouts


@pytest.mark.parametrize("name", DROPOUTS)
def test_each_dropout_is_there_while_training_alone(name: str):
    given = {"softmax": "mixture", "experts": 2} if name == "latent_dropout" else {}
    model, plain = make("ran", **{name: 0.5}, **given), make("ran", **given)
    tokens, targets = some_tokens(), some_tokens(seed=1)
    expected = plain.loss(tokens, targets).objective
    identical(model.loss(tokens, targets).objective, expected)
    torch.manual_seed(0)
    assert model.train().loss(tokens, targets).objective != expected


def test_masks_stand_between_the_layers():
    """With an identity in place of the layers, the output is the product of all masks."""
    model = make(num_layers=2, dropout_mode="batch").train()
    masks = [torch.full((1, 1, 8), 2.0 + number).double() for number in range(3)]
    for dropout, mask in zip((model.input_dropout, *model.layer_dropouts), masks, strict=True):
        dropout.fixed = mask
    tokens = some_tokens()
    encoded = model(tokens)
    x = 2 * model.embedding(tokens)
    first = model.layers[0](x)[0]
    second = model.layers[1](3 * first)[0]
    same(encoded.layers, (first, second))
    same(encoded.raw, second)
    same(encoded.output, 4 * second)


def test_the_variational_dropout_of_scrn():
    """One mask for a whole batch: on h as it is carried and given out; on s as it is given out alone."""
    rates = dict.fromkeys(("input_dropout", "layer_dropout", "output_dropout", "state_dropout"), 0.5)
    model = make("scrn", dropout_mode="batch", state_dropout_on="carried", **rates).train()
    torch.manual_seed(1)
    encoded = model(some_tokens())
    h, dropped = encoded.raw[..., 1:], encoded.output
    gone = (h == 0).all(0).all(0)
    assert gone.any()
    assert not gone.all()
    assert ((h != 0) == ~gone).all()
    identical(encoded.state[-1].h[0], h[-1])
    identical(dropped[..., 1:], h)
    masked = dropped[..., :1] / encoded.raw[..., :1]
    assert masked.unique().tolist() in ([0.0], [2.0])
    assert (encoded.state[-1].s != 0).all()


def test_a_context_that_is_not_dropped():
    """Table 5 of the SCRN paper: dropout on h alone, in every layer."""
    rates = {"layer_dropout": 0.5, "output_dropout": 0.5}
    model = make("scrn", context_dropout=False, **rates).train()
    torch.manual_seed(1)
    encoded = model(some_tokens())
    identical(encoded.output[..., :1], encoded.raw[..., :1])
    masked = encoded.output[..., 1:] / encoded.raw[..., 1:]
    assert sorted(masked.round().unique().tolist()) == [0.0, 2.0]
    assert [dropout.spared for dropout in model.layer_dropouts] == [(1, 0), (1, 0)]
    with pytest.raises(ValueError, match="unit='lrn' has none"):
        make("lrn", context_dropout=False)


# -------------------------------------------------------------------------------------- penalties


def test_penalties_are_added_with_their_factors():
    given = {"ar": 2.0, "tar": 3.0, "sobolev": 5.0}
    model, plain = make("scrn", **given), make("scrn")
    tokens, targets = some_tokens(), some_tokens(seed=1)
    encoded, parts = model(tokens), model.loss(tokens, targets)
    expected = {
        "ar": 2 * activation_penalty(encoded.output),
        "tar": 3 * temporal_penalty(encoded.raw),
        "sobolev": 5
        * sum(
            sobolev_penalty(y[..., -8:], layer.first_cell.recurrent.weight).sum() / (T * B)
            for y, layer in zip(encoded.layers, model.layers, strict=True)
        ),
    }
    assert parts.penalties == {name: pytest.approx(value.item()) for name, value in expected.items()}
    mean = plain.loss(tokens, targets).objective
    same(parts.objective, mean + sum(expected.values()))
    same(parts.nll, (mean * T * B).detach())


def test_activation_is_penalised_as_dropped_and_its_change_as_it_was():
    model = make(ar=1.0, tar=1.0).train()
    model.layer_dropouts[1].fixed = torch.full((1, 1, 8), 3.0).double()
    encoded, parts = model(some_tokens()), model.loss(some_tokens(), some_tokens())
    assert parts.penalties["ar"] == pytest.approx(9 * activation_penalty(encoded.raw).item())
    assert parts.penalties["tar"] == pytest.approx(temporal_penalty(encoded.raw).item())


# ----------------------------------------------------------------------------------------- starts


def spread(weight: Tensor) -> tuple[float, float]:
    return weight.abs().max().item(), weight.std().item()


@pytest.mark.parametrize("init", INITS)
def test_starts_are_those_of_the_recipes(init: str):
    torch.manual_seed(0)
    unit = "scrn" if init in ("uniform", "normal") else "ran"
    model = LanguageModel(40, LanguageModelConfig(unit=unit, init=init, init_scale=0.05))
    embedding, output, bias = model.embedding.weight, model.softmax.weight, model.softmax.bias
    cell = model.layers[0].first_cell
    uniform = (pytest.approx(0.05, rel=0.02), pytest.approx(0.05 / math.sqrt(3), rel=0.05))
    if init in ("unit", "uniform", "weights"):
        assert spread(embedding) == uniform
        assert spread(output) == uniform
    assert (bias.abs().max().item() == pytest.approx(0.05, rel=0.2)) == (init in ("uniform", "weights"))
    if init in ("uniform", "weights"):
        assert spread(cell.recurrent.weight) == uniform
    assert (cell.input.bias == 0).all() == (init != "uniform")
    if init == "rows":
        bound = math.sqrt(3 / 40)
        assert spread(output) == (
            pytest.approx(bound, rel=0.02),
            pytest.approx(bound / math.sqrt(3), rel=0.05),
        )
    if init == "xavier":
        assert spread(embedding)[1] == pytest.approx(1, rel=0.05)
        assert spread(output)[1] == pytest.approx(math.sqrt(2 / 240), rel=0.05)
    if init == "normal":
        assert spread(cell.recurrent.weight)[1] == pytest.approx(0.05, rel=0.05)
        assert (output == 0).all()


def test_a_norm_starts_as_a_norm_whatever_the_recipe():
    model = LanguageModel(V, small("ran", unit_options={"norm": "layer"}, init="uniform"))
    assert (model.layers[0].first_cell.input.norm.weight == 1).all()


def test_the_same_seed_gives_the_same_model_and_resetting_another():
    models = []
    for _ in range(2):
        torch.manual_seed(3)
        models.append(LanguageModel(V, small("scrn", init="weights")))
    identical(dict(models[0].named_parameters()), dict(models[1].named_parameters()))
    before = {name: weight.clone() for name, weight in models[0].named_parameters()}
    models[0].reset_parameters()
    for name, weight in models[0].named_parameters():
        assert (weight == 0).all() if name.endswith("input.bias") else not torch.equal(weight, before[name])


# ----------------------------------------------------------------------------------------- budget


@pytest.mark.parametrize(
    ("unit", "given"), [("lstm", {}), ("scrn", {"tied": True}), ("sru", {"num_layers": 1})]
)
def test_the_hidden_size_comes_closest_to_the_budget(unit: str, given: dict[str, Any]):
    config, budget = small(unit, **given), 20_000

    def gap(size: int) -> int:
        return abs(LanguageModel(50, with_hidden_size(config, size)).count() - budget)

    size = hidden_size_for(budget, 50, config)
    assert gap(size) < 0.05 * budget
    assert gap(size) <= min(gap(size - 1), gap(size + 1))


def test_what_is_tied_keeps_its_size():
    assert with_hidden_size(small(tied=True), 32).embedding_size == 32
    assert with_hidden_size(small(), 32).embedding_size == 8
    assert with_hidden_size(small(tied=True, projection=8), 32).embedding_size == 8


def test_a_budget_that_is_too_small_is_refused():
    with pytest.raises(ValueError, match=r"a budget of 100 parameters is too small: with hidden_size=1"):
        hidden_size_for(100, 50, small())


# ---------------------------------------------------------------------------------------- answers


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ({"unit": "lsmt"}, r"no unit 'lsmt'; did you mean 'lstm'\? choose from sru, lrn, "),
        ({"unit": "LSTM"}, r"no unit 'LSTM'; did you mean 'lstm'\?"),
        ({"softmax": "hierarchical"}, "softmax must be one of 'full', 'mixture', 'adaptive'"),
        ({"input_dropout": 1.0}, r"input_dropout must be in \[0, 1\)"),
        ({"hidden_sizes": ()}, "hidden_sizes must have a size for each layer"),
        ({"hidden_size": 0}, "hidden_size must be at least 1"),
        ({"sobolev": 1.0}, "the Sobolev penalty is that of scrn; unit='lstm'"),
        ({"tied": True, "softmax": "adaptive", "cutoffs": (3,)}, "set tied=False"),
        ({"softmax": "adaptive"}, "needs cutoffs, e.g."),
        ({"tied": True, "embedding_size": 0}, "tied=True needs an embedding"),
        ({"softmax": "mixture", "embedding_size": 0}, "needs latent_size"),
        ({"softmax": "mixture", "tied": True, "latent_size": 5}, "latent_size must be embedding_size=8 or 0"),
        ({"unit_options": {"dropout": 0.1}}, "set its layer_dropout"),
        ({"unit_options": {"bidirectional": True}}, "reads in one direction"),
        ({"init": "zeros"}, "init must be one of"),
    ],
)
def test_a_config_that_cannot_be_answers(given: dict[str, Any], answer: str):
    with pytest.raises(ValueError, match=answer):
        LanguageModelConfig(**{"embedding_size": 8, "hidden_size": 8, **given})


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        (
            {"tied": True, "hidden_size": 9},
            r"embedding of size 8 as output matrix, but the last output of this model has size 9; "
            r"set embedding_size=9, or the last hidden size to 8, or projection=8",
        ),
        ({"unit": "scrn", "tied": True, "hidden_size": 9}, "the last h of this model has size 9"),
        ({"tied": True, "projection": 3}, "the last projection of this model has size 3"),
        ({"unit": "lrn", "state_dropout": 0.1}, "LRN has no recurrent matrix"),
        ({"unit": "scrn", "sobolev": 1.0, "unit_options": {"proj_size": 4}}, "proj_size or residual hide it"),
    ],
)
def test_sizes_that_do_not_fit_answer(given: dict[str, Any], answer: str):
    with pytest.raises(ValueError, match=answer):
        LanguageModel(V, small(**given))


def test_an_option_that_the_unit_does_not_have_answers():
    with pytest.raises(TypeError, match="RAN has no option 'alpha'"):
        LanguageModel(V, small("ran", unit_options={"alpha": 0.5}))


@pytest.mark.parametrize(
    ("tokens", "error", "answer"),
    [
        (torch.zeros(T, B), TypeError, "tokens must be a tensor of torch.int64"),
        ([[1, 2]], TypeError, "got list"),
        (torch.zeros(T, dtype=torch.int64), ValueError, r"\[time, batch\] and not empty; got shape \(6,\)"),
        (torch.zeros(0, B, dtype=torch.int64), ValueError, "not empty"),
        (
            torch.tensor([[0, V]]),
            IndexError,
            "tokens has the id 13, but .* vocabulary of 13: ids are 0 to 12",
        ),
        (torch.tensor([[-1]]), IndexError, "tokens has the id -1"),
    ],
)
def test_tokens_that_are_none_answer(tokens: Any, error: type[Exception], answer: str):
    with pytest.raises(error, match=answer):
        make()(tokens)


def test_targets_that_do_not_fit_answer():
    model = make()
    with pytest.raises(IndexError, match=r"targets has the id 13, .* or -100 where no target is counted"):
        model.loss(some_tokens(), torch.full((T, B), V))
    with pytest.raises(ValueError, match=r"got tokens \(6, 3\) and targets \(5, 3\)"):
        model.loss(some_tokens(), some_tokens(5))


def test_a_state_that_does_not_fit_answers():
    model = make("ran")
    with pytest.raises(
        TypeError, match="a tuple of the states of its 2 layers, as it returns them; got 1 of"
    ):
        model(some_tokens(), (None,))
    with pytest.raises(TypeError, match="got Tensor"):
        model(some_tokens(), torch.zeros(1))
    with pytest.raises(ValueError, match="step_logits takes the tokens of one step"):
        model.step_logits(some_tokens())


# ----------------------------------------------------------------------------------------- config


def test_every_option_says_what_it_is():
    for field in dataclasses.fields(LanguageModelConfig):
        assert field.metadata["help"], field.name


def test_a_config_comes_back_from_plain_values():
    config = LanguageModelConfig(unit="lrn", hidden_sizes=(3, 4), unit_options={"activation": "identity"})
    plain = dataclasses.asdict(config)
    assert LanguageModelConfig(**{**plain, "hidden_sizes": [3, 4], "cutoffs": []}) == config


def test_a_state_dict_has_each_tensor_once():
    model = make("scrn", tied=True)
    pointers = [tensor.data_ptr() for tensor in model.state_dict().values()]
    assert len(pointers) == len(set(pointers))
