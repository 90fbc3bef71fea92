"""Sets of labelled series by name, from the files of an installed package, and their splits.

    splits = load_labelled_series("japanese_vowels").splits
    splits.train[0].values, splits.train[0].label

sktime is not imported; only its .ts files are read. They have a training and a test set; the validation set
is taken from the training set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from linnet.base.project import advice
from linnet.data.columnar import listed
from linnet.data.errors import DataError, MissingDataError, unknown
from linnet.data.labelled import FOLDS, hold_out
from linnet.data.labelled_series import (
    ANSWERS,
    LabelledSeries,
    LongColumns,
    SeriesRows,
    changes,
    with_one_label,
    with_step_labels,
)
from linnet.data.labelled_series_files import read_labelled_series
from linnet.data.sets import Described, WantedFiles

PACKAGE = "sktime"


class SeriesSplits(NamedTuple):
    """The series of each split."""

    train: list[LabelledSeries]
    valid: list[LabelledSeries]
    test: list[LabelledSeries]


class LoadedSeries(NamedTuple):
    """The splits of a set, what the training file has, and whether each step has an answer."""

    splits: SeriesSplits
    rows: SeriesRows
    steps: bool


@dataclass(frozen=True)
class LabelledSeriesSet(Described):
    """A set in the folder `folder` of the package; `value`: its answers are numbers."""

    folder: str = ""
    value: bool = False


@dataclass(frozen=True)
class WantedSeries(WantedFiles):
    """Which splits of which series.

    answers            one of ANSWERS: an answer for each series, for each step, or as the labels are
    value              the answers are numbers
    fold_count, fold   test (or validation, with a test file) is part `fold` of `fold_count` equal parts
    """

    columns: LongColumns = field(default_factory=LongColumns)
    answers: str = "auto"
    value: bool = False
    fold_count: int = FOLDS
    fold: int = 0
    split_seed: int = 1


def load_labelled_series(name: str, wanted: WantedSeries | None = None) -> LoadedSeries:
    """Read a set of LABELLED_SERIES_SETS; the set "own" is the file `wanted.path`."""
    wanted = wanted or WantedSeries()
    if name not in LABELLED_SERIES_SETS:
        raise unknown("set", name, LABELLED_SERIES_SETS)
    if wanted.answers not in ANSWERS:
        raise unknown("kind of answers", wanted.answers, ANSWERS)
    if not 0 <= wanted.fold < wanted.fold_count:
        raise DataError(f"fold must be from 0 to {wanted.fold_count - 1}; got {wanted.fold}")
    chosen = LABELLED_SERIES_SETS[name]
    paths = (wanted.path, wanted.valid_path, wanted.test_path)
    if name != "own":
        folder = package_folder(name, chosen.folder)
        paths = (folder / f"{folder.name}_TRAIN.ts", None, folder / f"{folder.name}_TEST.ts")
    if paths[0] is None:
        raise DataError("the set 'own' is a file of yours; give its path (path=, --path)")
    return loaded(paths, wanted)


def package_folder(name: str, folder: str) -> Path:
    found = find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise MissingDataError(
            f"the set {name!r} is in the package {PACKAGE}: {advice('series')}, or give a file "
            "of yours (--path)"
        )
    return Path(found.origin).parent / "datasets" / "data" / folder


# ---------------------------------------------------------------------------------------- splits


def loaded(paths: Sequence[str | Path | None], wanted: WantedSeries) -> LoadedSeries:
    first = read_labelled_series(paths[0], wanted.columns)  # type: ignore[arg-type]
    check_kind(paths[0], first, wanted)
    # Other files have the columns that were found in the first.
    columns = first.columns._replace(answer=wanted.columns.answer)
    others = [read_labelled_series(path, columns) if path else None for path in paths[1:]]
    steps = answers_at_steps(first, wanted)
    for path, rows in zip(paths[1:], others, strict=True):
        check_channels(path, rows, first)
    train, valid, test = (
        None if rows is None else [with_answers(each, steps) for each in rows.series]
        for rows in (first, *others)
    )
    assert train is not None
    return LoadedSeries(completed(train, valid, test, wanted, steps), first, steps)


def answers_at_steps(rows: SeriesRows, wanted: WantedSeries) -> bool:
    if wanted.answers != "auto":
        return wanted.answers == "steps"
    return any(changes(each) for each in rows.series)


def with_answers(series: LabelledSeries, steps: bool) -> LabelledSeries:
    """Return the series with its answer or those of its steps; raise if it has none."""
    made = with_step_labels(series) if steps else with_one_label(series)
    if not (any(made.labels) if steps else made.label):
        raise DataError(f"{series.where} has no label; expected one for each series, or for each step")
    return made


def check_kind(path: object, rows: SeriesRows, wanted: WantedSeries) -> None:
    """Raise if a file says that its answers are numbers and classes are wanted, or the other way round."""
    if rows.value and not wanted.value:
        raise DataError(f"{path} has numbers (@targetLabel) and not classes; give --value target")
    if rows.value is False and wanted.value:
        raise DataError(f"{path} has classes (@classLabel) and not numbers; leave out --value")


def check_channels(path: object, rows: SeriesRows | None, first: SeriesRows) -> None:
    if rows is not None and len(rows.channels) != len(first.channels):
        raise DataError(
            f"{path} has {len(rows.channels)} channels, and the training file has {len(first.channels)}: "
            f"{listed(first.channels)}"
        )


def completed(
    train: list[LabelledSeries],
    valid: list[LabelledSeries] | None,
    test: list[LabelledSeries] | None,
    wanted: WantedSeries,
    steps: bool,
) -> SeriesSplits:
    """Take the splits that are missing from the training series; each class is spread over the parts."""
    by_label = not (steps or wanted.value)
    folds, fold, seed = wanted.fold_count, wanted.fold, wanted.split_seed
    if test is None:
        train, test = hold_out(train, folds, fold, seed, by_label)
        if valid is None:
            train, valid = hold_out(train, FOLDS, 0, seed, by_label)
    elif valid is None:
        train, valid = hold_out(train, folds, fold, seed, by_label)
    return SeriesSplits(train, valid, test)


# --------------------------------------------------------------------------------------- the list


def of_sktime(folder: str, about: str, value: bool = False) -> LabelledSeriesSet:
    return LabelledSeriesSet(
        f"{about}; in the package {PACKAGE}", "no terms are stated; for research", folder, value
    )


LABELLED_SERIES_SETS: Mapping[str, LabelledSeriesSet] = {
    "japanese_vowels": of_sktime(
        "JapaneseVowels", "nine speakers by two vowels: 12 channels, 7 to 29 steps (Kudo et al. 1999)"
    ),
    "basic_motions": of_sktime(
        "BasicMotions", "standing, running, walking or badminton by a watch: 6 channels, 100 steps"
    ),
    "gun_point": of_sktime("GunPoint", "hands that draw a gun or point: 1 channel, 150 steps"),
    "italy_power": of_sktime(
        "ItalyPowerDemand", "days of winter or summer by the power used in Italy: 1 channel, 24 steps"
    ),
    "arrow_head": of_sktime("ArrowHead", "three kinds of arrowheads by their outlines: 1 channel, 251 steps"),
    "osu_leaf": of_sktime("OSULeaf", "six kinds of leaves by their outlines: 1 channel, 427 steps"),
    "plaid": of_sktime("PLAID", "eleven kinds of appliances by their current: 1 channel, 100 to 1,344 steps"),
    "acsf1": of_sktime("ACSF1", "ten kinds of appliances by their power: 1 channel, 1,460 steps"),
    "tecator": of_sktime(
        "Tecator", "the fat of meat, a number, by its spectrum: 1 channel, 100 steps", value=True
    ),
    "own": LabelledSeriesSet("your own file (--path)", "yours"),
}
