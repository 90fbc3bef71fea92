"""The loss in pieces is the plain one; the three softmaxes are distributions, and their losses agree."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers import randn, same
from torch import Tensor

from linnet.layers import softmax
from linnet.layers.softmax import (
    IGNORE,
    AdaptiveSoftmax,
    FullSoftmax,
    MixtureSoftmax,
    mixture_nll,
    reference_nll,
)

N, D, V, K = 7, 5, 11, 3


@pytest.fixture(params=[1, 3 * V, 10**6], ids=["row by row", "a few rows", "all rows"])
def _piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(softmax, "PIECE", request.param)


def leaves(bias: bool = True, scale: float = 1.0) -> list[Tensor]:
    made = [scale * randn(N, D), randn(V, D, seed=1), *([randn(V, seed=2)] if bias else [])]
    return [tensor.requires_grad_() for tensor in made]


def some_targets(ignored: bool = False) -> Tensor:
    targets = torch.randint(0, V, (N,), generator=torch.Generator().manual_seed(3))
    if ignored:
        targets[[0, 4]] = IGNORE
    return targets


def ours(given: list[Tensor], targets: Tensor) -> Tensor:
    x, weight, *bias = given
    return mixture_nll(x, weight, bias[0] if bias else None, targets)


def plain(given: list[Tensor], targets: Tensor) -> Tensor:
    x, weight, *bias = given
    return F.cross_entropy(F.linear(x, weight, bias[0] if bias else None), targets)


@pytest.mark.usefixtures("_piece")
@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_the_loss_in_pieces_is_cross_entropy(bias: bool, ignored: bool):
    given, targets = leaves(bias), some_targets(ignored)
    mine, theirs = ours(given, targets), plain(given, targets)
    same(mine, theirs)
    same(torch.autograd.grad(3 * mine, given), torch.autograd.grad(3 * theirs, given))


@pytest.mark.usefixtures("_piece")
def test_without_gradients_it_is_the_same_number():
    given, targets = leaves(), some_targets(True)
    with torch.no_grad():
        mine = ours(given, targets)
    assert not mine.requires_grad
    same(mine, plain(given, targets).detach())


@pytest.mark.parametrize("frozen", [0, 1, 2])
def test_what_needs_no_gradient_gets_none(frozen: int):
    given, targets = leaves(), some_targets()
    given[frozen] = given[frozen].detach()
    wanted = [tensor for tensor in given if tensor.requires_grad]
    same(
        torch.autograd.grad(ours(given, targets), wanted), torch.autograd.grad(plain(given, targets), wanted)
    )


def test_a_loss_can_be_differentiated_more_than_once():
    given, targets = leaves(), some_targets()
    loss = ours(given, targets)
    expected = torch.autograd.grad(plain(given, targets), given)
    first = torch.autograd.grad(2 * loss, given, retain_graph=True)
    second = torch.autograd.grad(loss, given)
    same(first, tuple(2 * g for g in expected))
    same(second, expected)


def test_one_matrix_may_serve_two_losses():
    x, weight = leaves(False)
    targets = some_targets()
    mine = ours([x, weight], targets) + ours([2 * x, weight], targets.flip(0))
    theirs = plain([x, weight], targets) + plain([2 * x, weight], targets.flip(0))
    same(torch.autograd.grad(mine, (x, weight)), torch.autograd.grad(theirs, (x, weight)))


def test_its_gradient_can_be_differentiated_again():
    given, targets = leaves(), some_targets(True)
    assert torch.autograd.gradgradcheck(lambda *given: ours(list(given), targets), given)


def test_a_word_of_no_probability_has_the_loss_that_its_logits_say():
    """exp(-2000) is 0 in any precision; -log of it is not needed to be infinite."""
    x, weight = torch.tensor([[1.0]]).requires_grad_(), torch.tensor([[0.0], [2000.0]]).requires_grad_()
    loss = mixture_nll(x, weight, None, torch.tensor([0]))
    assert loss.item() == 2000
    same(torch.autograd.grad(loss, weight)[0], torch.tensor([[-1.0], [1.0]]))


def test_nothing_counted_costs_nothing():
    given = leaves()
    loss = ours(given, torch.full((N,), IGNORE))
    assert loss.item() == 0
    assert all((g == 0).all() for g in torch.autograd.grad(loss, given))


def test_no_rows_cost_nothing():
    x, weight, bias = leaves()
    given = [x.detach()[:0].requires_grad_(), weight, bias]
    loss = ours(given, some_targets()[:0])
    assert loss.item() == 0
    assert all((g == 0).all() for g in torch.autograd.grad(loss, given))


@pytest.mark.usefixtures("_piece")
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=["float64", "bfloat16"])
def test_memory_that_was_not_filled_is_not_read(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch):
    def poisoned(like: Tensor, **how: Any) -> Tensor:
        return torch.full_like(like, torch.nan, **how)

    given = [tensor.detach().to(dtype).requires_grad_() for tensor in leaves()]
    expected = torch.autograd.grad(ours(given, some_targets()), given)
    monkeypatch.setattr(torch, "empty_like", poisoned)
    found = torch.autograd.grad(ours(given, some_targets()), given)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(found, expected, strict=True))


def test_a_nan_is_not_hidden():
    x, weight, bias = leaves()
    assert torch.isnan(mixture_nll(x * torch.nan, weight, bias, some_targets()))


@pytest.mark.usefixtures("_piece")
def test_in_bfloat16_sums_are_taken_in_more():
    given, targets = leaves(), some_targets(True)
    low = [tensor.detach().bfloat16().requires_grad_() for tensor in given]
    loss = ours(low, targets)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss.double(), plain(given, targets), rtol=0.01, atol=0.01)
    found, expected = torch.autograd.grad(loss, low), torch.autograd.grad(plain(given, targets), given)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype == torch.bfloat16
        torch.testing.assert_close(mine.double(), theirs, rtol=0.05, atol=0.02)


def test_autocast_chooses_the_precision_of_the_product():
    given, targets = [tensor.detach().float().requires_grad_() for tensor in leaves()], some_targets()
    with torch.autocast("cpu", torch.bfloat16):
        loss = ours(given, targets)
    assert 0 < (loss - plain(given, targets)).abs() < 0.05
    assert all(g.dtype == torch.float32 for g in torch.autograd.grad(loss, given))


# --------------------------------------------------------------------------------------- mixture


def mixed() -> list[Tensor]:
    prior = torch.softmax(randn(N, K, seed=5), -1)
    made = [randn(N, K, D), randn(V, D, seed=1), randn(V, seed=2), prior]
    return [tensor.requires_grad_() for tensor in made]


def our_mixture(x: Tensor, weight: Tensor, bias: Tensor, prior: Tensor, targets: Tensor) -> Tensor:
    return mixture_nll(x, weight, bias, targets, prior)


@pytest.mark.usefixtures("_piece")
@pytest.mark.parametrize("ignored", [False, True])
def test_the_mixture_in_pieces_is_the_plain_formula(ignored: bool):
    given, targets = mixed(), some_targets(ignored)
    mine, theirs = our_mixture(*given, targets), reference_nll(*given, targets)
    same(mine, theirs)
    same(torch.autograd.grad(mine, given), torch.autograd.grad(theirs, given))


def test_the_gradient_of_the_mixture_can_be_differentiated_again():
    given, targets = mixed(), some_targets()
    assert torch.autograd.gradgradcheck(lambda *given: our_mixture(*given, targets), given)


# --------------------------------------------------------------------------------------- modules


def filled(module: torch.nn.Module) -> Any:
    for number, weight in enumerate(module.double().parameters()):
        weight.data = 0.5 * randn(*weight.shape, seed=number)
    return module


MODULES = {
    "full": lambda: (FullSoftmax(D, V), None),
    "tied": lambda: (FullSoftmax(D, V, tied_size=D), randn(V, D, seed=8)),
    "tied in part": lambda: (FullSoftmax(D, V, tied_size=3), randn(V, 3, seed=8)),
    "no bias": lambda: (FullSoftmax(D, V, False), None),
    "mixture": lambda: (MixtureSoftmax(D, V, experts=K, latent_size=4), None),
    "tied mixture": lambda: (
        MixtureSoftmax(D, V, experts=K, latent_size=4, tied=True),
        randn(V, 4, seed=8),
    ),
    "adaptive": lambda: (AdaptiveSoftmax(D, V, cutoffs=(3,)), None),
}


@pytest.mark.parametrize("name", MODULES)
def test_probabilities_sum_to_one_and_make_the_loss(name: str):
    module, tied = MODULES[name]()
    filled(module)
    x, targets = randn(4, 2, D), torch.tensor([[0, 1], [2, 9], [IGNORE, 5], [10, 3]])
    log_p = module.log_probs(x, tied)
    same(log_p.exp().sum(-1), torch.ones(4, 2).double(), atol=1e-6)
    counted = targets != IGNORE
    picked = log_p.gather(-1, targets.clamp(min=0)[..., None])[..., 0][counted]
    same(module.loss(x, targets, tied), -picked.mean())
    same(torch.log_softmax(module.logits(x[0], tied), -1), log_p[0], atol=1e-6)


def test_a_softmax_tied_in_part_decodes_the_first_features_by_its_own_matrix():
    module, tied = FullSoftmax(D, V, tied_size=3), randn(V, 3, seed=8)
    filled(module)
    x = randn(2, D)
    expected = x[:, :2] @ module.weight.T + x[:, 2:] @ tied.T + module.bias
    same(module.logits(x, tied), expected)
    assert module.weight.shape == (V, 2)


def test_the_adaptive_softmax_ignores_what_is_not_counted():
    module = filled(AdaptiveSoftmax(D, V, cutoffs=(3,)))
    assert module.loss(randn(2, 1, D), torch.full((2, 1), IGNORE)).item() == 0


@pytest.mark.parametrize("cutoffs", [(), (0, 3), (6, 3), (3, 3), (3, 11)])
def test_cutoffs_that_do_not_rise_within_the_vocabulary_are_refused(cutoffs: tuple[int, ...]):
    with pytest.raises(ValueError, match=r"rise from above 0 to below the size of the vocabulary, 11"):
        AdaptiveSoftmax(D, V, cutoffs=cutoffs)


def test_more_clusters_than_there_are_features_for_are_refused():
    with pytest.raises(ValueError, match="2 cutoffs need at least 16 features, and there are 5"):
        AdaptiveSoftmax(D, V, cutoffs=(3, 6))


def test_a_tied_softmax_asks_for_its_matrix():
    with pytest.raises(TypeError, match="the matrix of the embedding"):
        FullSoftmax(D, V, tied_size=D).loss(torch.zeros(1, 1, D), torch.zeros(1, 1, dtype=torch.int64))


def test_latent_dropout_is_there_while_training_alone():
    module = filled(MixtureSoftmax(D, V, experts=K, latent_size=4, dropout=0.5))
    x, targets = randn(4, 2, D), torch.zeros(4, 2, dtype=torch.int64)
    torch.manual_seed(0)
    trained = module.loss(x, targets)
    evaluated = module.eval().loss(x, targets)
    assert trained != evaluated
    module.train().dropout.fixed = torch.ones(1, 2, K * 4).double()
    same(module.loss(x, targets), evaluated)
