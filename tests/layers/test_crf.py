"""The CRF against an enumeration of all sequences of tags, and its laws."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import pytest
import torch
from torch import Tensor

import linnet
from linnet.layers.crf_sums import Chain, LogSums, ScaledSums, sums_of

TAGS, LENGTHS = 3, [4, 1, 3]


def made(seed: int = 0, scale: float = 1.0, **options) -> linnet.CRF:
    torch.manual_seed(seed)
    crf = linnet.CRF(TAGS, dtype=torch.double, **options)
    for parameter in crf.parameters():
        torch.nn.init.normal_(parameter, 0, scale)
    return crf


def emissions(scale: float = 1.0) -> Tensor:
    return scale * torch.randn(4, 3, TAGS, dtype=torch.double, generator=torch.Generator().manual_seed(1))


def tags() -> Tensor:
    return torch.randint(TAGS, (4, 3), generator=torch.Generator().manual_seed(2))


def all_scores(crf: linnet.CRF, x: Tensor) -> dict[tuple[int, ...], Tensor]:
    """The score of every sequence of tags for the emissions [T, K] of one sequence, by the definition."""
    scores = {}
    for y in product(range(TAGS), repeat=len(x)):
        score = crf.start_transitions[y[0]] + sum(x[t, tag] for t, tag in enumerate(y))
        score = score + sum(crf.transitions[a, b] for a, b in pairwise(y))
        scores[y] = score + crf.end_transitions[y[-1]] if crf.use_end else score
    return scores


def close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.fixture(params=["scaled", "logarithms"])
def _sums(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    if request.param == "logarithms":
        monkeypatch.setattr(ScaledSums, "LARGEST_SPREAD", -1.0)


# ------------------------------------------------------------------------------------- enumeration


@pytest.mark.usefixtures("_sums")
@pytest.mark.parametrize("use_end", [True, False])
def test_likelihood_and_gradients_equal_an_enumeration(use_end: bool):
    crf, x, y = made(use_end=use_end), emissions().requires_grad_(), tags()
    ours = crf(x, y, lengths=LENGTHS, reduction="none")
    theirs = []
    for column, length in enumerate(LENGTHS):
        scores = all_scores(crf, x[:length, column])
        log_z = torch.stack(list(scores.values())).logsumexp(0)
        theirs.append(scores[tuple(y[:length, column].tolist())] - log_z)
    close(ours, torch.stack(theirs))
    weights = torch.tensor([0.5, -2.0, 1.5], dtype=torch.double)
    leaves = [x, *(parameter for parameter in crf.parameters() if parameter.requires_grad)]
    found = torch.autograd.grad((ours * weights).sum(), leaves)
    expected = torch.autograd.grad((torch.stack(theirs) * weights).sum(), leaves)
    for gradient, other in zip(found, expected, strict=True):
        close(gradient, other)


@pytest.mark.usefixtures("_sums")
def test_log_partition_and_marginals_equal_an_enumeration():
    crf, x = made(), emissions()
    marginals, log_z = crf.marginals(x, lengths=LENGTHS), crf.log_partition(x, lengths=LENGTHS)
    for column, length in enumerate(LENGTHS):
        scores = all_scores(crf, x[:length, column])
        close(log_z[column], torch.stack(list(scores.values())).logsumexp(0))
        expected = torch.zeros(4, TAGS, dtype=torch.double)
        for y, score in scores.items():
            expected[range(length), y] += (score - log_z[column]).exp()
        close(marginals[:, column], expected)


@pytest.mark.parametrize("use_end", [True, False])
def test_the_best_sequence_is_that_of_an_enumeration(use_end: bool):
    crf, x = made(use_end=use_end), emissions()
    paths, best = crf.decode(x, lengths=LENGTHS), crf.viterbi(x, lengths=LENGTHS)
    for column, length in enumerate(LENGTHS):
        scores = all_scores(crf, x[:length, column])
        expected = max(scores, key=scores.__getitem__)
        assert paths[column] == list(expected) == best.tags[:length, column].tolist()
        close(best.scores[column], scores[expected])
        assert not best.tags[length:, column].any()


def test_gradcheck():
    crf, x = made(), emissions().requires_grad_()
    names = [name for name, _ in crf.named_parameters()]

    def likelihood(x: Tensor, *parameters: Tensor) -> Tensor:
        given = dict(zip(names, parameters, strict=True))
        options = {"lengths": LENGTHS, "reduction": "none"}
        return torch.func.functional_call(crf, given, (x, tags()), options)

    assert torch.autograd.gradcheck(likelihood, (x, *crf.parameters()))


# -------------------------------------------------------------------------------------------- laws


def test_padding_never_changes_a_result():
    crf, x, y = made(), emissions(), tags()
    longer, more = (
        torch.cat([x, x.new_full((2, 3, TAGS), torch.nan)]),
        torch.cat([y, y.new_full((2, 3), -100)]),
    )
    for step in range(4):
        padded = torch.tensor([step >= length for length in LENGTHS])
        longer[step, padded], more[step, padded] = torch.nan, 99
    longer.requires_grad_()
    ours, theirs = (crf(*given, lengths=LENGTHS, reduction="none") for given in ((longer, more), (x, y)))
    assert torch.equal(ours, theirs)
    ours.sum().backward()
    assert longer.grad is not None
    assert longer.grad.isfinite().all()
    assert not longer.grad[4:].any()
    assert crf.decode(longer, lengths=LENGTHS) == crf.decode(x, lengths=LENGTHS)
    assert torch.equal(crf.marginals(longer, lengths=LENGTHS)[:4], crf.marginals(x, lengths=LENGTHS))


@pytest.mark.parametrize("kept", [(0, 1, 4, 5), (2, 3, 4, 5), (1, 3, 4, 6)])
def test_steps_that_a_mask_excludes_are_skipped(kept: tuple[int, ...]):
    """Padding at the end, at the start and between: the result is that of the steps that remain."""
    crf, kept_steps = made(), list(kept)
    x, y = torch.full((7, 3, TAGS), 5.0, dtype=torch.double), torch.zeros(7, 3, dtype=torch.int64)
    x[kept_steps], y[kept_steps] = emissions(), tags()
    mask = torch.zeros(7, 3, dtype=torch.bool)
    mask[kept_steps] = True
    assert torch.equal(crf(x, y, mask), crf(emissions(), tags()))
    assert crf.decode(x, mask) == crf.decode(emissions())
    close(crf.marginals(x, mask)[kept_steps], crf.marginals(emissions()))
    assert torch.equal(crf.viterbi(x, mask).tags[kept_steps], crf.viterbi(emissions()).tags)


def test_batch_first_is_the_same_transposed():
    crf, other = made(), made(batch_first=True)
    x, y = emissions(), tags()
    mask = torch.arange(4)[:, None] < torch.tensor(LENGTHS)
    assert torch.equal(other(x.transpose(0, 1), y.T, mask.T), crf(x, y, mask))
    assert torch.equal(other.marginals(x.transpose(0, 1), mask.T), crf.marginals(x, mask).transpose(0, 1))
    assert torch.equal(other.viterbi(x.transpose(0, 1), mask.T).tags, crf.viterbi(x, mask).tags.T)


def test_reductions():
    crf, x, y = made(), emissions(), tags()
    each = crf(x, y, lengths=LENGTHS, reduction="none")
    close(crf(x, y, lengths=LENGTHS), each.sum())
    close(crf(x, y, lengths=LENGTHS, reduction="mean"), each.mean())
    close(crf(x, y, lengths=LENGTHS, reduction="token_mean"), each.sum() / sum(LENGTHS))
    per_word = each / torch.tensor(LENGTHS)
    close(crf(x, y, lengths=LENGTHS, reduction="sequence_token_mean"), per_word.mean())


@pytest.mark.parametrize("scale", [90.0, 1e4])
def test_large_scores_neither_overflow_nor_vanish(scale: float):
    """In float32, exp(90) is infinite: scores are not exponentiated as they are."""
    crf, x = made(scale=scale).float(), emissions(scale).float().requires_grad_()
    found = crf(x, tags(), lengths=LENGTHS)
    found.backward()
    assert found.isfinite()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    exact = made(scale=scale)(emissions(scale), tags(), lengths=LENGTHS)
    torch.testing.assert_close(found, exact.float(), rtol=1e-6, atol=0)


def test_a_forbidden_transition_is_never_taken():
    crf, x = made(), emissions()
    with torch.no_grad():
        crf.transitions[0, 1] = -torch.inf
    for path in crf.decode(x):
        assert (0, 1) not in set(pairwise(path))
    assert crf.log_partition(x).isfinite().all()


def test_the_products_are_used_up_to_the_largest_spread():
    """Just below the limit nothing underflows; above it, logarithms are summed."""
    crf, x = made(), emissions()
    with torch.no_grad():
        crf.transitions[0, 1] -= ScaledSums.LARGEST_SPREAD - 10
    start, end, pairs = (parameter.detach() for parameter in crf.parameters())
    chain = Chain(x, torch.tensor(LENGTHS), start, pairs, end)
    scaled, exact = sums_of(chain), LogSums(chain)
    assert isinstance(scaled, ScaledSums)
    close(scaled.log_partition(), exact.log_partition())
    close(scaled.marginals(), exact.marginals())
    weights = torch.ones(3, dtype=torch.double)
    close(scaled.expected_pairs(weights), exact.expected_pairs(weights))
    wider = replace(chain, transitions=2 * pairs)
    assert isinstance(sums_of(wider), LogSums)


@pytest.mark.parametrize("spread", [0.1, 30.0, 99.0, 199.0])
def test_products_of_long_sequences_neither_overflow_nor_underflow(spread: float):
    """Each step prefers the other tag as much as the transitions prefer the same one."""
    x = torch.zeros(800, 1, 2, dtype=torch.double)
    x[::2, :, 0] = x[1::2, :, 1] = spread / 2
    pairs, none = torch.eye(2, dtype=torch.double) * spread / 2, torch.zeros(2, dtype=torch.double)
    chain = Chain(x, torch.tensor([800]), none, pairs, none)
    scaled, exact = sums_of(chain), LogSums(chain)
    assert isinstance(scaled, ScaledSums)
    close(scaled.log_partition(), exact.log_partition())
    torch.testing.assert_close(scaled.marginals(), exact.marginals(), rtol=1e-9, atol=1e-12)
    weights = torch.ones(1, dtype=torch.double)
    torch.testing.assert_close(
        scaled.expected_pairs(weights), exact.expected_pairs(weights), rtol=1e-9, atol=1e-12
    )


def test_parameters_and_results_are_those_of_pytorch_crf():
    torchcrf = pytest.importorskip("torchcrf")
    crf, theirs = made(), torchcrf.CRF(TAGS).double()
    theirs.load_state_dict(crf.state_dict())
    x, y, mask = emissions(), tags(), torch.arange(4)[:, None] < torch.tensor(LENGTHS)
    for reduction in ("none", "sum", "mean", "token_mean"):
        close(crf(x, y, mask, reduction=reduction), theirs(x, y, mask, reduction=reduction))
    assert crf.decode(x, mask) == theirs.decode(x, mask)


# ------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (
            {"emissions": torch.zeros(4, 3, 5)},
            ValueError,
            r"num_tags=3 and got emissions of shape \(4, 3, 5\)",
        ),
        ({"emissions": torch.zeros(4, 3, TAGS, dtype=torch.int64)}, TypeError, "floating-point numbers; got"),
        ({"tags": torch.zeros(4, 2, dtype=torch.int64)}, ValueError, r"of shape \(4, 3\), as the emissions"),
        ({"tags": torch.full((4, 3), 3)}, IndexError, "tags are 0 to 2, as num_tags=3; got 3 to 3"),
        ({"lengths": [4, 0, 3]}, ValueError, "between 1 and 4"),
        ({"mask": torch.zeros(4, 3, dtype=torch.bool)}, ValueError, "at least one real step"),
        ({"mask": torch.ones(3, 4, dtype=torch.bool)}, ValueError, r"shape \(4, 3\)"),
        ({"mask": torch.ones(4, 3, dtype=torch.bool), "lengths": LENGTHS}, ValueError, "not both"),
        ({"reduction": "average"}, ValueError, "reduction must be one of"),
    ],
)
def test_errors_say_what_was_expected(change: dict, error: type[Exception], text: str):
    given = {"emissions": emissions(), "tags": tags(), **change}
    with pytest.raises(error, match=text):
        made()(**given)
