"""Pretrained word vectors: GloVe's and word2vec's text format, or an array with a list of its words.

    vectors = read_vectors("glove.6B.50d.txt", words=vocabulary.tokens)
    vectors.words, vectors.matrix      # the words that were found, [N, D]

A text file has a word and its numbers on each line, separated by spaces. The first line may be "N D", the
number of words and of dimensions. Both formats may be compressed with gzip or xz. Only the vectors of the
wanted words are held in memory, so a file of millions of words can be read for a small vocabulary.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from linnet.data.errors import DataError, MissingDataError, unknown
from linnet.data.files import LARGEST_OF_YOURS, File, find, missing, opened, places, unpacked
from linnet.data.sets import Described
from linnet.data.text import decode_utf8

VOCABULARY = "vocab.txt"


class Vectors(NamedTuple):
    """A vector for each of some words."""

    words: tuple[str, ...]
    matrix: Tensor  # float32 [N, D]


@dataclass(frozen=True)
class VectorSource(Described):
    """Vectors that are known by name: an array, and its words in VOCABULARY in the same folder."""

    file: File
    folders: tuple[str, ...]


VECTORS = {
    "glove50": VectorSource(
        about="GloVe 6B, 50 dimensions, lower case: 119,189 of its 400,000 words",
        terms="public domain (PDDL 1.0)",
        file=File("glove.6B.50d.subset.npy"),
        folders=("glove50",),
    )
}


def read_vectors(
    name: str | Path, words: Collection[str] | None = None, data_dir: str | Path | None = None
) -> Vectors:
    """Read the vectors of `words`, or of all words, from a file or by a name of `VECTORS`.

    The words come in the order of the file; words that it does not have are left out.
    `data_dir` is the folder that is searched first for vectors known by name.
    """
    path = find_vectors(name, data_dir)
    wanted = None if words is None else frozenset(words)
    array = ".npy" in path.suffixes
    found = dict(read_array(path, wanted) if array else read_lines(path, wanted))
    if not found:
        what = "has no vectors" if words is None else f"has none of the {len(set(words)):,} wanted words"
        raise DataError(f"{path} {what}; expected a word and its numbers on each line")
    return Vectors(tuple(found), torch.from_numpy(np.stack(list(found.values()))))


def vector_size(name: str | Path, data_dir: str | Path | None = None) -> int:
    """Return the number of dimensions of vectors."""
    path = find_vectors(name, data_dir)
    if ".npy" in path.suffixes:
        return load_array(path).shape[-1]
    first = next(numbered_lines(path), (1, ""))[1]
    header = header_of(first)
    return header[1] if header else first.count(" ")


def find_vectors(name: str | Path, data_dir: str | Path | None) -> Path:
    """Return the path of vectors by name or path; a file goes before a name."""
    if Path(name).is_file():
        return Path(name)
    if str(name) not in VECTORS:
        if Path(name).suffix or Path(name).parent != Path():
            raise MissingDataError(f"there is no file {name} with word vectors")
        raise unknown("file of word vectors, and no name of vectors,", str(name), VECTORS)
    source, searched = VECTORS[str(name)], places(data_dir)
    found = find([source.file], source.folders, searched)
    if found is None:
        raise MissingDataError(missing(source.file, searched))
    return found[1]


# ------------------------------------------------------------------------------------- text format


def read_lines(path: Path, wanted: frozenset[str] | None) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the wanted words with their vectors; of a word that occurs twice, the first vector."""
    lines = numbered_lines(path)
    first = next(lines, None)
    if first is None:
        return
    header = header_of(first[1])
    size = header[1] if header else first[1].count(" ")
    known: set[str] = set()
    number = first[0]
    for number, line in lines if header else chain([first], lines):
        word, *values = fields(path, number, line, size)
        if word not in known and (wanted is None or word in wanted):
            known.add(word)
            yield word, numbers(path, number, values)
    if header and number - 1 != header[0]:
        raise DataError(
            f"{path} has {number - 1:,} vectors, but its first line says {header[0]:,}; it may be incomplete"
        )


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file without their ends, and their numbers."""
    with opened(path) as stream:
        for number, line in enumerate(stream, 1):
            try:
                yield number, line.decode().rstrip(" \r\n")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{path}, line {number:,} is not UTF-8: its byte {error.start} is "
                    f"0x{line[error.start]:02x}; convert the file to UTF-8"
                ) from None


def header_of(line: str) -> tuple[int, int] | None:
    """Return N and D of a first line "N D"; None if it is the line of a word."""
    both = line.split(" ")
    return (int(both[0]), int(both[1])) if len(both) == 2 and all(map(str.isdecimal, both)) else None


def fields(path: Path, number: int, line: str, size: int) -> list[str]:
    """Return the word of a line and its `size` numbers, not yet converted."""
    found = line.split(" ")
    # A few words of GloVe 840B have spaces (". . ."); a number in front of the vector is one too many.
    extra = len(found) - 1 - size
    if extra > 0 and size and not is_number(found[extra]):
        return [" ".join(found[: extra + 1]), *found[extra + 1 :]]
    if extra or not size:
        raise DataError(
            f"{path}, line {number:,} has {len(found) - 1} numbers; expected a word and "
            f"{f'{size} numbers, as in the first line' if size else 'its numbers, separated by spaces'}"
        )
    return found


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def numbers(path: Path, number: int, values: list[str]) -> np.ndarray:
    try:
        with np.errstate(over="ignore"):
            found = np.array(values, np.float32)
    except ValueError:
        wrong = next(value for value in values if not is_number(value))
        raise DataError(f"{path}, line {number:,} has {wrong!r}; expected a number") from None
    if not np.isfinite(found).all():
        raise DataError(f"{path}, line {number:,} has a number that is not finite in 32 bits")
    return found


# ------------------------------------------------------------------------------------------- array


def read_array(path: Path, wanted: frozenset[str] | None) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the wanted rows of an array, whose words are the lines of VOCABULARY in the same folder."""
    listed = find([File(VOCABULARY)], (), [path.parent])
    if listed is None:
        raise MissingDataError(f"{path} needs {VOCABULARY} in its folder, with one word per line")
    words = decode_utf8(str(listed[1]), unpacked(listed[1], LARGEST_OF_YOURS)).splitlines()
    matrix = load_array(path)
    if matrix.ndim != 2 or len(matrix) != len(words) or matrix.dtype.kind != "f":
        raise DataError(
            f"{path} has {matrix.dtype} {matrix.shape}; expected float [{len(words)}, D], a row for each "
            f"word of {listed[1]}"
        )
    rows = ((word, row) for word, row in zip(words, matrix, strict=True) if wanted is None or word in wanted)
    return ((word, row.astype(np.float32)) for word, row in rows)


def load_array(path: Path) -> np.ndarray:
    try:
        return np.load(io.BytesIO(unpacked(path, LARGEST_OF_YOURS)), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise DataError(f"{path} is not an array as numpy.save writes it: {error}") from None
