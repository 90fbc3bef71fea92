"""Labelled series of numbers: sequences of different lengths, with one or many channels.

    rows = series_of_long_table(read_table("gestures.csv"), LongColumns(group=("id",), answer="kind"))
    rows.series[0].values          # float64 [T, channels], NaN where a value is missing
    rows.series[0].label           # "wave"
    rows.channels                  # the names of the channels

Tables are long: a row for each step of each series. Steps have the order of the rows, or of their times.
linnet.data.labelled_series_files reads files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from linnet.data.columnar import MISSING, Table, listed
from linnet.data.errors import DataError
from linnet.data.frames import kind_of_frame, table_of_frame
from linnet.data.layouts import INDEX, has_numbers, with_named_index
from linnet.data.series import LARGEST, check_header, check_uses, groups, numbers_of

ANSWERS = ("auto", "sequence", "steps")
# Columns with these names tell the series apart if no column is named.
GROUPS = ("series", "sequence", "id", "series_id", "sequence_id", "group", "case", "case_id", "name")


class LongColumns(NamedTuple):
    """The columns of a table with a row for each step.

    group         those that tell the series apart; (): found by their names, or the only column of texts
    channels      the values that are read; (): all other columns of numbers
    answer        the class or the number to predict; "": none, as in inputs of `predict`
    option        the option that names it, for messages: label or value
    time          the times of the steps; "": steps are one apart, in the order of the rows
    time_format   of strptime, for unusual times
    """

    group: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    answer: str = ""
    option: str = "label"
    time: str = ""
    time_format: str = ""


DEFAULT = LongColumns()


@dataclass(frozen=True, eq=False)
class LabelledSeries:
    """One series with its answer, or with one for each of its steps.

    name     of its group; "" for the only series of an input
    values   float64 [T, channels]; NaN where a value is missing
    place    returns the file and the line of a step, for messages
    label    the class, or the number as a text; "" if there is none, or one for each step
    labels   those of the steps; "": none, and (): the file has one for the series
    times    float64 [T], rising
    """

    name: str
    values: np.ndarray
    place: Callable[[int], str]
    label: str = ""
    labels: tuple[str, ...] = ()
    times: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def where(self) -> str:
        """The place of the first step, with the name."""
        return f"{self.place(0)}, series {self.name!r}" if self.name else self.place(0)


class SeriesRows(NamedTuple):
    """All series of a file.

    columns   as given, with what was found
    value     whether the file says that its answers are numbers; None: it does not say
    notes     sentences about decisions that the user may want to know
    """

    series: tuple[LabelledSeries, ...]
    channels: tuple[str, ...]
    columns: LongColumns = DEFAULT
    value: bool | None = None
    notes: tuple[str, ...] = ()


def series_of_inputs(inputs: Any, columns: LongColumns, channels: int) -> SeriesRows:
    """Return the series of a frame, of an array or of a list of arrays, without answers.

    An array [T] or [T, channels] is one series, one [N, T, channels] and a list are several. With times,
    arrays have them as a further channel, the last one.
    """
    if kind_of_frame(inputs):
        table = table_of_frame(inputs)
        given = [name for name in columns.group if name in table.names]
        return series_of_long_table(table, columns._replace(answer="", group=tuple(given)), alone=True)
    return series_of_arrays(inputs, columns, channels)


# --------------------------------------------------------------------------------------- long tables


def series_of_long_table(table: Table, columns: LongColumns, alone: bool = False) -> SeriesRows:
    """Return the series of a table; with `alone`, one without a group is a single series."""
    check_header(table)
    table = with_named_index(table)
    columns, notes = found_columns(table, columns, alone)
    codes, names = groups(table, columns.group)
    values = numbers_of(table, columns.channels, "channels")
    times, said = step_times(table, columns)
    order = np.lexsort((times, codes)) if times is not None else np.argsort(codes, kind="stable")
    firsts = [*np.flatnonzero(np.diff(codes[order], prepend=-1)).tolist(), len(order)]
    if times is not None:
        check_twins(table, columns.time, times, codes, order)
        notes += [*said, *sorted_note(times, codes)]
    labels = label_texts(table, columns)
    series = tuple(
        checked(
            series_of_rows(name, order[firsts[number] : firsts[number + 1]], table, values, labels, times)
        )
        for number, name in enumerate(names)
    )
    return SeriesRows(series, columns.channels, columns, notes=tuple(notes))


def found_columns(table: Table, columns: LongColumns, alone: bool) -> tuple[LongColumns, list[str]]:
    """Return the columns with the group and the channels, and notes about those that were found."""
    notes = []
    for option, name in ((columns.option, columns.answer), ("time", columns.time)):
        if name:
            table.position(name, option)
    if not columns.group:
        columns = columns._replace(group=find_group(table, columns, alone))
        if columns.group:
            notes.append(f"the column {columns.group[0]!r} tells the series apart (--group)")
    if not columns.channels:
        columns, left_out = with_channels(table, columns)
        many = f"{len(columns.channels)} channels: " if len(columns.channels) > 1 else "1 channel: "
        notes.append(many + listed(columns.channels) + left_out)
    uses = {"time": (columns.time,), columns.option: (columns.answer,)}
    check_uses(table, {**uses, "group": columns.group, "channels": columns.channels})
    return columns, notes


def find_group(table: Table, columns: LongColumns, alone: bool) -> tuple[str, ...]:
    used = {columns.answer, columns.time, *columns.channels}
    free = [name for name in table.names if name not in used]
    named = [name for name in free if name.lower() in GROUPS]
    texts = [name for name in free if not has_numbers(table, table.names.index(name))]
    found = named or texts
    if len(found) == 1 or (named and found):
        return (found[0],)
    if alone and not found:
        return ()
    raise DataError(
        f"{table.source}: name the column that tells the series apart with --group; it has "
        f"{listed(table.names)}. A table has a row for each step of each series"
    )


def with_channels(table: Table, columns: LongColumns) -> tuple[LongColumns, str]:
    """Return the columns with all other columns of numbers as channels, and what is left out."""
    used = {columns.answer, columns.time, *columns.group}
    # An index without a name counts the rows.
    free = [name for name in table.names if name not in used and name != INDEX]
    channels = tuple(name for name in free if has_numbers(table, table.names.index(name)))
    if not channels:
        raise DataError(
            f"{table.source} has no column of numbers besides {listed(sorted(filter(None, used)))}; expected "
            "one for each channel. Name them with --channels"
        )
    others = [name for name in free if name not in channels]
    left_out = f"; without numbers, and not read: {listed(others)}" if others else ""
    return columns._replace(channels=channels), left_out


def label_texts(table: Table, columns: LongColumns) -> list[str] | None:
    """Return the answer of each row; "" where the field says that there is none."""
    if not columns.answer:
        return None
    fields = table.columns[table.position(columns.answer, columns.option)]
    texts = [str(each).strip() for each in fields]
    return ["" if text.lower() in MISSING and text.lower() != "none" else text for text in texts]


def step_times(table: Table, columns: LongColumns) -> tuple[np.ndarray | None, list[str]]:
    """Return the time of each row as float64: numbers as they are, dates in seconds."""
    if not columns.time:
        return None, []
    position = table.position(columns.time, "time")
    numbers = fractions(table, position) if not columns.time_format else None
    if numbers is not None:
        return numbers, []
    times = table.times(position, columns.time_format)
    return times.values.astype(np.int64).astype(np.float64), [
        f"times ({columns.time!r}): {times.note}"
    ] * bool(times.note)


def fractions(table: Table, position: int) -> np.ndarray | None:
    """Return a column of numbers with fractions, such as 0.25 seconds; None: it has none, or has dates."""
    try:
        numbers = table.numbers(position)
    except DataError:
        if has_numbers(table, position):
            raise
        return None
    if (numbers == np.floor(numbers)).all():
        return None
    if np.isnan(numbers).any():
        row = int(np.isnan(numbers).argmax())
        raise DataError(f"{table.place(row)}: the time is missing; expected a time in each row")
    return numbers


def check_twins(table: Table, time: str, times: np.ndarray, codes: np.ndarray, order: np.ndarray) -> None:
    same = (np.diff(times[order]) == 0) & (np.diff(codes[order]) == 0)
    if same.any():
        place = int(same.argmax())
        one, other = sorted((int(order[place]), int(order[place + 1])))
        text = table.columns[table.position(time, "time")][other]
        raise DataError(
            f"{table.place(other)}: the time {text} was already at {table.place(one)}; a series has one row "
            "for each time. Remove one of them, or name the series with --group"
        )


def sorted_note(times: np.ndarray, codes: np.ndarray) -> list[str]:
    order = np.argsort(codes, kind="stable")
    falls = (np.diff(times[order]) < 0) & (np.diff(codes[order]) == 0)
    count = len(np.unique(codes[order][1:][falls]))
    return [f"the rows of {count:,} series were not in the order of their times; they are sorted"] * bool(
        count
    )


def series_of_rows(
    name: str,
    rows: np.ndarray,
    table: Table,
    values: np.ndarray,
    labels: list[str] | None,
    times: np.ndarray | None,
) -> LabelledSeries:
    def place(step: int) -> str:
        return table.place(int(rows[step]))

    own = () if labels is None else tuple(labels[row] for row in rows)
    return LabelledSeries(name, values[rows], place, "", own, None if times is None else times[rows])


def checked(series: LabelledSeries) -> LabelledSeries:
    if not len(series) or np.isnan(series.values).all():
        raise DataError(f"{series.where} has no value: all its fields are empty. Remove the series")
    large = np.abs(series.values) > LARGEST
    if large.any():
        step, channel = np.argwhere(large)[0].tolist()
        name = f", series {series.name!r}" if series.name else ""
        raise DataError(
            f"{series.place(step)}{name} has a value of {series.values[step, channel]:g}; expected at most "
            f"{LARGEST:g}. Divide the values, or leave wrong ones empty"
        )
    return series


# -------------------------------------------------------------------------------------------- answers


def changes(series: LabelledSeries) -> bool:
    """Whether the answer changes within the series."""
    return len(set(series.labels) - {""}) > 1


def with_one_label(series: LabelledSeries) -> LabelledSeries:
    """Return the series with one answer, which all its steps have; steps may leave it out."""
    if series.label or not series.labels:
        return series
    found = [(step, label) for step, label in enumerate(series.labels) if label]
    first = found[0][1] if found else ""
    for step, label in found:
        if label != first:
            raise DataError(
                f"{series.place(step)}: the label of series {series.name!r} changes from {first!r} to "
                f"{label!r}; expected one label for a series. For an answer at every step, give "
                "--answers steps"
            )
    return replace(series, label=first, labels=())


def with_step_labels(series: LabelledSeries) -> LabelledSeries:
    """Return the series with an answer for each step."""
    return series if series.labels else replace(series, label="", labels=(series.label,) * len(series))


# --------------------------------------------------------------------------------------------- arrays


def series_of_arrays(arrays: Any, columns: LongColumns, channels: int) -> SeriesRows:
    timed = bool(columns.time)
    given = several_arrays(arrays)
    series = tuple(
        array_series(str(number) if len(given) > 1 else "", each, timed, channels)
        for number, each in enumerate(given)
    )
    names = columns.channels or tuple(channel_names(channels))
    return SeriesRows(series, names, columns)


def several_arrays(arrays: Any) -> list[Any]:
    if isinstance(arrays, list | tuple):
        return list(arrays) if len(arrays) and np.ndim(arrays[0]) > 0 else [arrays]
    return list(arrays) if np.ndim(arrays) == 3 else [arrays]


def array_series(name: str, array: Any, timed: bool, channels: int) -> LabelledSeries:
    what = f"array {name}".strip()
    values = array_values(what, array, channels + timed)

    def place(step: int) -> str:
        return f"{what}, step {step + 1:,}"

    if not timed:
        return checked(LabelledSeries("", values, place))
    times = values[:, -1]
    if not (np.diff(times) > 0).all():
        step = int((~(np.diff(times) > 0)).argmax()) + 1
        raise DataError(
            f"{place(step)}: the time is {times[step]:g} after {times[step - 1]:g}; expected times that "
            "rise, in the last channel"
        )
    return checked(LabelledSeries("", values[:, :-1], place, times=times))


def array_values(what: str, array: Any, channels: int) -> np.ndarray:
    """Return float64 [T, channels]."""
    try:
        values = np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{what}: expected numbers [steps, channels]: {error}") from None
    if values.ndim == 1 and channels == 1:
        values = values[:, None]
    if values.ndim != 2 or values.shape[1] != channels or not len(values):
        raise DataError(
            f"{what} has the shape {values.shape}; this model reads [steps, {channels}], a row for each step"
        )
    if np.isinf(values).any():
        step = int(np.isinf(values).any(1).argmax())
        raise DataError(
            f"{what}, step {step + 1:,}: a value is infinite; expected finite numbers, or NaN if missing"
        )
    return values


def channel_names(count: int) -> Sequence[str]:
    return ["value"] if count == 1 else [f"channel {number}" for number in range(1, count + 1)]
