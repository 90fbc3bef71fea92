"""Labelled series in the arrays of an .npz file.

    x         [N, T, channels], or [N, T] for one channel; with lengths [N], the steps after them are padding
    x         [steps of all series, channels], or [steps] for one channel, with lengths: one after another
    lengths   [N]
    y         [N]: the class or the number of each series; [N, T] or [steps]: of each step
    times     [N, T] or [steps], for --time times
    names     [N], and channels [channels]: texts

NaN is a missing value. Without lengths, steps at the end of a series that have NaN in all channels are
padding.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from linnet.data.columnar import listed
from linnet.data.errors import DataError, MissingDataError
from linnet.data.labelled_series import LabelledSeries, LongColumns, SeriesRows, channel_names, checked

Arrays = Mapping[str, np.ndarray]


def read_npz(path: str | Path, columns: LongColumns) -> SeriesRows:
    arrays = load_arrays(Path(path))
    x = with_channel(numbers(path, arrays, "x"), arrays.get("lengths"))
    lengths = read_lengths(path, arrays, x)
    values = split_series(path, "x", x if joined(x, lengths) or x.ndim == 3 else x[..., None], x, lengths)
    values = [each[:, None] if each.ndim == 1 else each for each in values]
    answers, answer = answers_of(path, arrays, columns, x, lengths, values)
    times = times_of(path, arrays, columns, x, lengths, values)
    series = tuple(
        one_series(path, number, each, answers[number], None if times is None else times[number], arrays)
        for number, each in enumerate(values)
    )
    return SeriesRows(series, names_of_channels(path, arrays, values), columns._replace(answer=answer))


def load_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a file; objects are refused, as reading them may run code."""
    if not path.is_file():
        raise MissingDataError(f"there is no file {path}")
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path} is not an .npz file; numpy.savez writes one")
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        reason = str(error)
        advice = ""
        if "pickle" in reason or "Object arrays" in reason:
            advice = (
                ". Arrays of objects are not read: write series of different lengths one after another, "
                "x [steps, channels], with their lengths"
            )
        raise DataError(f"{path} is not an .npz file that can be read: {reason}{advice}") from None


def array(path: str | Path, arrays: Arrays, name: str, option: str = "") -> np.ndarray:
    if name not in arrays:
        hint = f". Name it with --{option}" if option else ""
        raise DataError(f"{path} has no array {name!r}; it has {listed([*arrays])}{hint}")
    return arrays[name]


def numbers(path: str | Path, arrays: Arrays, name: str) -> np.ndarray:
    found = array(path, arrays, name)
    if found.dtype.kind not in "fiub" or not 1 <= found.ndim <= 3 or not found.size:
        raise DataError(
            f"{path}: {name} has the type {found.dtype} and the shape {found.shape}; expected numbers "
            "[series, steps, channels], or [steps, channels] with lengths"
        )
    found = found.astype(np.float64)
    if np.isinf(found).any():
        at = ", ".join(map(str, np.argwhere(np.isinf(found))[0].tolist()))
        raise DataError(f"{path}: {name}[{at}] is infinite; expected finite numbers, or NaN if missing")
    return found


# ------------------------------------------------------------------------------------------- lengths


def read_lengths(path: str | Path, arrays: Arrays, x: np.ndarray) -> np.ndarray | None:
    if "lengths" not in arrays:
        if x.ndim == 1:
            raise DataError(f"{path}: x has one dimension; expected [series, steps], or an array lengths")
        return None
    lengths = arrays["lengths"]
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or not len(lengths):
        raise DataError(
            f"{path}: lengths has the type {lengths.dtype} and the shape {lengths.shape}; expected integers "
            "[series]"
        )
    if (lengths < 1).any():
        number = int((lengths < 1).argmax())
        raise DataError(f"{path}: lengths[{number}] is {lengths[number]}; a series has at least one step")
    check_sum(path, lengths, x)
    return lengths.astype(np.int64)


def check_sum(path: str | Path, lengths: np.ndarray, x: np.ndarray) -> None:
    if x.ndim < 3 and int(lengths.sum()) != len(x):
        raise DataError(
            f"{path}: the sum of lengths is {int(lengths.sum()):,} and x has {len(x):,} steps; expected all "
            "series one after another"
        )
    if x.ndim == 3 and (len(lengths) != len(x) or (lengths > x.shape[1]).any()):
        raise DataError(
            f"{path}: lengths has {len(lengths):,} numbers of up to {int(lengths.max()):,} for x of shape "
            f"{x.shape}; expected one of at most {x.shape[1]:,} for each of {len(x):,} series"
        )


def with_channel(x: np.ndarray, lengths: np.ndarray | None) -> np.ndarray:
    """Return x [N, T] with lengths [N] as [N, T, 1]; if their sum is N, the series are one after another."""
    if lengths is None or x.ndim != 2:
        return x
    is_padded = lengths.shape == (len(x),) and int(lengths.sum()) != len(x)
    return x[..., None] if is_padded else x


def joined(x: np.ndarray, lengths: np.ndarray | None) -> bool:
    """Whether the series are one after another."""
    return lengths is not None and x.ndim < 3


def split_series(
    path: str | Path, name: str, steps: np.ndarray, x: np.ndarray, lengths: np.ndarray | None
) -> list[np.ndarray]:
    """Return the part of each series of an array that has a value for each step of x."""
    if joined(x, lengths):
        assert lengths is not None
        if len(steps) != len(x):
            raise DataError(f"{path}: {name} has {len(steps):,} steps and x has {len(x):,}")
        return np.split(steps, np.cumsum(lengths)[:-1])
    if steps.shape[:2] != x.shape[:2]:
        raise DataError(
            f"{path}: {name} has the shape {steps.shape}; expected {x.shape[:2]}, a value for each step of x"
        )
    if lengths is None:
        lengths = real_lengths(x)
    return [each[:length] for each, length in zip(steps, lengths.tolist(), strict=True)]


def real_lengths(x: np.ndarray) -> np.ndarray:
    """Return the steps up to the last one with a value; a series without any keeps all."""
    known = ~np.isnan(x if x.ndim == 2 else x.reshape(*x.shape[:2], -1)).reshape(*x.shape[:2], -1).all(-1)
    last = x.shape[1] - known[:, ::-1].argmax(1)
    return np.where(known.any(1), last, x.shape[1])


# ------------------------------------------------------------------------------- answers, times, names


def answers_of(
    path: str | Path,
    arrays: Arrays,
    columns: LongColumns,
    x: np.ndarray,
    lengths: np.ndarray | None,
    values: list[np.ndarray],
) -> tuple[list[Any], str]:
    """Return a text for each series, or the texts of its steps; and the name of the array."""
    if not columns.answer:
        return [""] * len(values), ""
    name = "y" if columns.answer == "label" and "label" not in arrays else columns.answer
    y = array(path, arrays, name, columns.option)
    if y.ndim == 1 and len(y) == len(values):
        return [text(each) for each in y], name
    if y.ndim == (1 if joined(x, lengths) else 2):
        parts = split_series(path, name, y, x, lengths)
        return [tuple(map(text, part)) for part in parts], name
    raise DataError(
        f"{path}: {name} has the shape {y.shape} for {len(values):,} series; expected one answer for each "
        "series, or one for each step"
    )


def text(value: Any) -> str:
    """Return the answer as a text: classes are names, integers also if they are stored as 1.0."""
    if isinstance(value, np.floating):
        return "" if np.isnan(value) else str(int(value)) if value == int(value) else repr(float(value))
    return str(value).strip()


def times_of(
    path: str | Path,
    arrays: Arrays,
    columns: LongColumns,
    x: np.ndarray,
    lengths: np.ndarray | None,
    values: list[np.ndarray],
) -> list[np.ndarray] | None:
    if not columns.time:
        return None
    array(path, arrays, columns.time, "time")
    found = split_series(path, columns.time, numbers(path, arrays, columns.time), x, lengths)
    for number, times in enumerate(found):
        if not (np.diff(times) > 0).all():
            step = int((~(np.diff(times) > 0)).argmax()) + 1
            raise DataError(
                f"{path}, series {number}, step {step}: the time is {times[step]:g} after "
                f"{times[step - 1]:g}; expected times that rise"
            )
    return found


def one_series(
    path: str | Path, number: int, values: np.ndarray, answer: Any, times: Any, arrays: Arrays
) -> LabelledSeries:
    names = arrays.get("names")
    name = str(names[number]) if names is not None and len(names) > number else str(number)
    label, labels = ("", answer) if isinstance(answer, tuple) else (answer, ())
    return checked(LabelledSeries(name, values, lambda step: str(path), label, labels, times))


def names_of_channels(path: str | Path, arrays: Arrays, values: list[np.ndarray]) -> tuple[str, ...]:
    count = values[0].shape[1]
    if "channels" not in arrays:
        return tuple(channel_names(count))
    names = tuple(map(str, arrays["channels"].reshape(-1)))
    if len(names) != count:
        raise DataError(f"{path}: channels has {len(names)} names, and x has {count} channels")
    return names
