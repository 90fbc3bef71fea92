"""Which of the papers' orderings our rows confirm: the first table of README.md, from claims.toml.

A claim compares pairs of rows of one table: the paper says that the first is better than the second. Either
may be a number instead of a row.

    source, says   where the paper says it, and what
    table, pairs   the table ("layer_times": the rows of layer_times.csv), and the pairs
    names          what distinguishes the pairs
    seeds          the rows of each seed, by {seed} in their names, are repetitions
    pool           what the pairs differ in, such as "sets": the pairs are repetitions of one comparison
    measure        one of MEASURES; `test` and `valid` are in the metric of the table
    within         the first may be worse by this much
    at_most        time: the first takes at most this share of the time of the second
    changed        compare runs with these changes, as results.csv names them
    paper          the paper's figures, if the rows do not have them
    reduced        by how much our runs are smaller than the paper's
    doubt          why our runs cannot decide, whatever they show: such a claim stays undecided

A difference is decided when it is larger than two standard errors; repetitions are paired by seed and by
fold. One run has no standard error, and decides nothing. Times are decided when the ranges from the 20th to
the 80th percentile of two rows that were measured in turn do not overlap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import NamedTuple

from experiments import layer_times, times
from experiments.curves import curve_path, read_curves
from experiments.results import Result
from experiments.tables import HERE, make, parse, read_table
from linnet.base.tables import markdown

CLAIMS = HERE / "claims.toml"
MEASURES = {
    **{"test": "", "valid": "", "time": "of an update", "solved": "updates until a memory task is solved"},
    **{"training loss": "at the end of its curve", "share of baseline": "the validation loss"},
}
HIGHER = ("accuracy", "f1", "bleu")  # metrics; of all others, and of all other measures, less is better
LAST = 0.9  # the training loss of a run is the mean after this share of its updates
ERRORS = 2  # standard errors that decide
CONFIRMED, CONTRADICTED, OPEN, ONE_RUN, MISSING = (
    "confirmed",
    "contradicted",
    "undecided",
    "one run",
    "not run",
)
PARTLY = "partly confirmed"


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper, and the rows that it is about; the fields are described above."""

    source: str
    says: str
    table: str
    pairs: tuple[tuple[str | float, str | float], ...]
    names: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    pool: str = ""
    measure: str = "test"
    within: float = 0.0
    at_most: float = 1.0
    changed: str = ""
    paper: str = ""
    reduced: str = ""
    doubt: str = ""

    @property
    def higher(self) -> bool:
        return self.measure in ("test", "valid") and read_table(self.table).metric in HIGHER


class Found(NamedTuple):
    """What came of one comparison: its figures in words, and what they say about the claim."""

    shown: str
    verdict: str
    agrees: bool = False  # whether the order is that of the paper, decided or not


def read_claims() -> list[Claim]:
    return [checked(make(Claim, values)) for values in parse(CLAIMS.read_text(encoding="utf-8"))["claim"]]


def checked(claim: Claim) -> Claim:
    if claim.measure not in MEASURES:
        raise ValueError(f"{claim.says}: measure is one of {', '.join(MEASURES)}; got {claim.measure!r}")
    if len(claim.names) != len(claim.pairs) and not (claim.pool or len(claim.pairs) == 1):
        raise ValueError(f"{claim.says}: {len(claim.pairs)} pairs need as many names; got {len(claim.names)}")
    return claim


# ----------------------------------------------------------------------------------- runs of a row


class Value(NamedTuple):
    """A figure of one run. `is_bound`: a task was not solved, and the figure is how long the run was."""

    number: float
    is_bound: bool = False


class Pair(NamedTuple):
    """The figures of the two rows with the same seed and fold."""

    first: Value
    second: Value

    @property
    def difference(self) -> float:
        return self.first.number - self.second.number


def values(claim: Claim, row: str, results: Sequence[Result]) -> dict[tuple[int, int], Value]:
    """Return the figures of all runs of a row, by seed and repetition."""
    found: dict[tuple[int, int], Value] = {}
    for seed in claim.seeds or (0,):
        of = (claim.table, row.format(seed=seed), claim.changed)
        for result in results:
            if (result["table"], result["row"], result["changed"]) == of:
                of_row = figures(claim.measure, result)
                found |= {(seed, number): value for number, value in enumerate(of_row)}
    return found


def figures(measure: str, result: Result) -> list[Value]:
    if measure == "solved":
        return [Value(float(result["steps"]), result["solved"] == "never")]
    if measure == "training loss":
        return [Value(last_loss(result))]
    if measure == "share of baseline":
        return [Value(float(result["valid"]) / float(result["baseline"]))]
    repeats = result["repeats"].split() if measure == "test" else []
    return [Value(float(number)) for number in repeats or [result[measure]]]


def last_loss(result: Result) -> float:
    path = curve_path(result["table"], result["row"], result["changed"])
    # Files of one split do not always name it.
    lines = [line for line in read_curves(path) if line.get("split", "train") == "train"]
    end = LAST * float(lines[-1]["step"])
    return mean(float(line["loss"]) for line in lines if float(line["step"]) > end)


def paired(claim: Claim, names: Sequence[str | float], results: Sequence[Result]) -> list[Pair]:
    """Return the figures of the repetitions that both have; a number is the same for all."""
    known = {row: values(claim, row, results) for row in names if isinstance(row, str)}
    keys = set.intersection(*map(set, known.values()))
    return [
        Pair(*(known[row][key] if isinstance(row, str) else Value(row) for row in names))
        for key in sorted(keys)
    ]


# ------------------------------------------------------------------------------------- comparisons


def compared(claim: Claim, results: Sequence[Result]) -> list[Found]:
    """Return what came of each pair, or of all pairs together if they are repetitions."""
    if claim.measure == "time":
        known = times_of(claim.table)
        return [compared_times(claim, *(known.get(str(row)) for row in names)) for names in claim.pairs]
    runs = [paired(claim, names, results) for names in claim.pairs]
    if claim.pool:
        runs = [[mean_of(pairs) for pairs in runs if pairs]]
    found = [decided(claim, names, pairs) for names, pairs in zip(claim.pairs, runs, strict=False)]
    return list(map(doubted, found)) if claim.doubt else found


def doubted(found: Found) -> Found:
    return found._replace(verdict=OPEN) if found.verdict in (CONFIRMED, CONTRADICTED) else found


def mean_of(pairs: Sequence[Pair]) -> Pair:
    return Pair(*(Value(mean(value.number for value in side)) for side in zip(*pairs, strict=True)))


def decided(claim: Claim, names: Sequence[str | float], pairs: Sequence[Pair]) -> Found:
    if not pairs:
        return Found("-", MISSING)
    better = [(1 if claim.higher else -1) * pair.difference for pair in pairs]
    agrees, shown = mean(better) + claim.within > 0, shown_pairs(claim, names, pairs)
    if len(pairs) == 1:
        return Found(shown, ONE_RUN, agrees)
    verdict = verdict_of(mean(better) + claim.within, standard_error(better))
    # A run that was not solved would have taken longer still: it cannot speak for its own side.
    unknown = {CONFIRMED: any(pair.first.is_bound for pair in pairs)}
    unknown[CONTRADICTED] = any(pair.second.is_bound for pair in pairs)
    return Found(shown, OPEN if unknown.get(verdict) else verdict, agrees)


def verdict_of(better: float, error: float) -> str:
    return CONFIRMED if better > ERRORS * error else CONTRADICTED if better < -ERRORS * error else OPEN


def standard_error(numbers: Sequence[float]) -> float:
    return stdev(numbers) / len(numbers) ** 0.5


def shown_pairs(claim: Claim, names: Sequence[str | float], pairs: Sequence[Pair]) -> str:
    """Return the mean difference of two rows, or the mean of a row that is compared with a number."""
    number = next((n for n, row in enumerate(names) if not isinstance(row, str)), None)
    of = [pair.difference if number is None else pair[1 - number].number for pair in pairs]
    digits = {"solved": 0, "training loss": 3}.get(claim.measure, 2)
    form = f"{'+' * (number is None)},.{digits}f"
    error = f" ± {standard_error(of):,.{digits}f}" if len(of) > 1 else ""
    never = sum(value.is_bound for pair in pairs for value in pair)
    unsolved = f" ({never} of {2 * len(pairs)} runs not solved)" if never else ""
    return f"{mean(of):{form}}{error}{unsolved}"


# ------------------------------------------------------------------------------------------- times


def times_of(table: str) -> dict[str, Result]:
    """Return the recorded times of a table by row, those of layers by layer, mode, length and width."""
    if table == "layer_times":
        return {
            ", ".join([line["layer"], *layer_times.kind_of(line)]): line for line in layer_times.read_times()
        }
    return {line["row"]: line for line in times.read_times() if line["table"] == table}


def compared_times(claim: Claim, first: Result | None, second: Result | None) -> Found:
    if first is None or second is None:
        return Found("-", MISSING)
    low, middle, high = (
        float(first[mine]) / float(second[other]) / claim.at_most
        for mine, other in (("p20_ms", "p80_ms"), ("p50_ms", "p50_ms"), ("p80_ms", "p20_ms"))
    )
    verdict = CONFIRMED if high < 1 else CONTRADICTED if low > 1 else OPEN
    return Found(f"× {middle * claim.at_most:.2f}", verdict, middle < 1)


# --------------------------------------------------------------------------------------- the table


def overall(found: Sequence[Found]) -> str:
    """Return the verdict about a claim: it says that all its comparisons have this order."""
    verdicts = {each.verdict for each in found}
    if CONTRADICTED in verdicts:
        return CONTRADICTED
    if verdicts == {CONFIRMED}:
        return CONFIRMED
    if verdicts == {MISSING}:
        return MISSING
    return PARTLY if CONFIRMED in verdicts else OPEN


def in_words(found: Sequence[Found]) -> str:
    """Return the verdict with the numbers of comparisons that lead to it."""
    head, counts = overall(found), Counter(each.verdict for each in found)
    if head == OPEN and ONE_RUN in counts:
        runs = [each for each in found if each.verdict == ONE_RUN]
        agree = sum(each.agrees for each in runs)
        order = f"{agree} of {len(runs)} in the paper's order"
        return f"{head}: one run{' each' * (len(runs) > 1)}, {order if len(runs) > 1 else agreement(agree)}"
    if len(counts) == 1:
        return f"**{head}**" if head != OPEN else head
    return f"**{head}**: {numbers(counts, (CONFIRMED, CONTRADICTED, OPEN, ONE_RUN, MISSING))}"


def numbers(counts: Counter[str], verdicts: Sequence[str]) -> str:
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in verdicts if counts[verdict])


def agreement(agrees: int) -> str:
    return "in the paper's order" if agrees else "against the paper's order"


def of_paper(claim: Claim) -> str:
    """Return the paper's figures: those of the claim, or the differences of its rows in the table."""
    return claim.paper or listed(claim, [f"{difference:+.1f}" for difference in of_rows(claim)])


def of_rows(claim: Claim) -> Iterator[float]:
    table, seed = read_table(claim.table), next(iter(claim.seeds), 0)
    for names in claim.pairs:
        one, other = (table.find(str(row).format(seed=seed)).paper.get("test") for row in names)
        if one is None or other is None:
            raise ValueError(f"{claim.says}: {names} have no figures of the paper; give them as `paper`")
        yield one - other


def listed(claim: Claim, texts: Sequence[str]) -> str:
    named = zip(claim.names or ("",), texts, strict=True)
    return "; ".join(f"{name} {text}".lstrip() for name, text in named)


def ours(claim: Claim, found: Sequence[Found]) -> str:
    shown = listed(claim, [each.shown for each in found])
    pooled = f"mean of {len(claim.pairs)} {claim.pool}" if claim.pool else ""
    about = "; ".join(filter(None, [pooled, claim.reduced, claim.doubt]))
    return f"{shown} ({about})" if about else shown


def claims_part(results: Sequence[Result]) -> str:
    """Return the table of all claims, after the number of each verdict."""
    found = [(claim, compared(claim, results)) for claim in read_claims()]
    counts = Counter(overall(each) for _, each in found)
    total = numbers(counts, (CONFIRMED, PARTLY, CONTRADICTED, OPEN, MISSING))
    body = [
        [claim.source, claim.says, of_paper(claim), ours(claim, each), in_words(each)]
        for claim, each in found
    ]
    head = ["where", "what the paper says", "paper", "ours", "verdict"]
    return f"Of {len(found)} claims: {total}.\n\n{markdown(head, body)}"
