"""Sentences with their translations: sets by name, and the user's own files of parallel lines.

    splits = load_parallel(WantedPairs(set="multi30k", direction="en-de", data_dir="data"))
    splits.train[0].source, splits.train[0].target

Line n of a file of targets is the translation of line n of the file of sources. An error names the file and
the line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from linnet.data.errors import DataError, MissingDataError, unknown
from linnet.data.files import LARGEST_OF_YOURS, File, read_any, unpacked
from linnet.data.kjv import paired_verses
from linnet.data.sets import Described
from linnet.data.text import decode_utf8

HELD_OUT = 10  # validation and test without files of their own are each one of this many equal parts


class Pair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


class ParallelSplits(NamedTuple):
    """The pairs of each split."""

    train: list[Pair]
    valid: list[Pair]
    test: list[Pair]


@dataclass(frozen=True)
class WantedPairs:
    """Which set, and in which direction.

    direction                 the two languages of a set, such as "en-de" (default: the set's first)
    source, target            of the set "own": its files
    valid_source, ...         the files of a split; they take the place of the split of any set
    """

    set: str = "bible"
    direction: str | None = None
    data_dir: str | None = None
    source: str | None = None
    target: str | None = None
    valid_source: str | None = None
    valid_target: str | None = None
    test_source: str | None = None
    test_target: str | None = None


@dataclass(frozen=True)
class ParallelSet(Described):
    read: Callable[[ParallelSet, WantedPairs], dict[str, list[Pair]]]  # the splits that the set has
    languages: tuple[str, ...] = ()

    def direction(self, wanted: WantedPairs) -> tuple[str, str]:
        """Return the two languages that are wanted."""
        if wanted.direction is None:
            return self.languages[0], self.languages[1]
        source, _, target = wanted.direction.partition("-")
        if source == target or not {source, target} <= {*self.languages}:
            raise DataError(
                f"the direction of the set {wanted.set!r} is two of {', '.join(self.languages)}, such as "
                f"{'-'.join(self.languages[:2])}; got {wanted.direction!r}"
            )
        return source, target


def load_parallel(wanted: WantedPairs) -> ParallelSplits:
    """Read a set of PARALLEL. Splits that are missing are cut off the end of the training set."""
    if wanted.set not in PARALLEL:
        raise unknown("set", wanted.set, PARALLEL)
    described = PARALLEL[wanted.set]
    if wanted.direction is not None and not described.languages:
        raise DataError(
            f"the set {wanted.set!r} has no direction; --source and --target name the files of each side"
        )
    given = {split: pairs for split in ("valid", "test") if (pairs := own_split(split, wanted))}
    return completed({**described.read(described, wanted), **given})


def completed(found: Mapping[str, list[Pair]]) -> ParallelSplits:
    train = found["train"]
    size = max(1, len(train) // HELD_OUT)
    missing = [split for split in ("test", "valid") if split not in found]
    if len(train) <= len(missing) * size:
        raise DataError(
            f"{len(train)} pairs of sentences cannot be cut into training, validation and test; give more "
            "pairs, or files for each split"
        )
    cut: dict[str, list[Pair]] = {}
    for split in missing:
        train, cut[split] = train[:-size], train[-size:]
    return ParallelSplits(**{**found, **cut, "train": train})


def own_split(split: str, wanted: WantedPairs) -> list[Pair] | None:
    """Return the pairs in the user's files of a split, or None without such files."""
    prefix = "" if split == "train" else f"{split}_"
    names = f"{prefix}source", f"{prefix}target"
    source, target = (getattr(wanted, name) for name in names)
    if (source is None) != (target is None):
        given, missing = names if target is None else reversed(names)
        flags = (f"--{name.replace('_', '-')}" for name in (given, missing))
        raise DataError("{} needs {}: the file with the other side of each line".format(*flags))
    return None if source is None else read_pairs(source, target)


# ---------------------------------------------------------------------------------------- own files


def read_pairs(source: str | Path, target: str | Path) -> list[Pair]:
    """Read two files of parallel lines; lines that are empty on both sides are left out."""
    sources, targets = read_lines(source), read_lines(target)
    check_counts(str(source), sources, str(target), targets)
    lines = enumerate(zip(sources, targets, strict=True), 1)
    found = [checked(Pair(*pair), number, source, target) for number, pair in lines if any(pair)]
    if not found:
        raise DataError(f"{source} and {target} have no lines with text; expected a sentence on each line")
    return found


def read_lines(path: str | Path) -> list[str]:
    """Read the lines of a file, which may be packed; spaces around and between words become one."""
    path = Path(path)
    if not path.is_file():
        raise MissingDataError(f"there is no file {path}")
    return split_lines(str(path), unpacked(path, LARGEST_OF_YOURS))


def split_lines(where: str, contents: bytes) -> list[str]:
    # Not splitlines(): a rare character that it takes for the end of a line would shift all later pairs.
    lines = decode_utf8(where, contents).split("\n")
    return [" ".join(line.split()) for line in (lines if lines[-1] else lines[:-1])]


def check_counts(source: str, sources: list[str], target: str, targets: list[str]) -> None:
    if len(sources) != len(targets):
        raise DataError(
            f"{source} has {len(sources):,} lines and {target} has {len(targets):,}; line n of one must be "
            "the translation of line n of the other, so both need the same number of lines"
        )


def checked(pair: Pair, number: int, source: str | Path, target: str | Path) -> Pair:
    if not all(pair):
        empty, full = (target, source) if pair.source else (source, target)
        raise DataError(
            f"{empty}, line {number:,} is empty, and {full} has a sentence in this line; give its "
            "translation, or delete the line in both files"
        )
    return pair


def own(described: ParallelSet, wanted: WantedPairs) -> dict[str, list[Pair]]:
    train = own_split("train", wanted)
    if train is None:
        raise DataError("the set 'own' is two files of parallel lines; give them with --source and --target")
    return {"train": train}


# --------------------------------------------------------------------------------------- other sets


def bible(described: ParallelSet, wanted: WantedPairs) -> dict[str, list[Pair]]:
    source, _ = described.direction(wanted)
    order = 1 if source == "kjv" else -1
    parts = ([Pair(*pair[::order]) for pair in part] for part in paired_verses())
    return dict(zip(ParallelSplits._fields, parts, strict=True))


def multi30k(described: ParallelSet, wanted: WantedPairs) -> dict[str, list[Pair]]:
    languages = described.direction(wanted)
    sides = ([published(part, wanted, language) for language in languages] for part in MULTI30K)
    parts = ([*map(Pair, *both)] for both in sides)
    return dict(zip(ParallelSplits._fields, parts, strict=True))


def published(part: str, wanted: WantedPairs, language: str) -> list[str]:
    name, checksum = f"{part}.{language}", f"sha256:{MULTI30K[part][language]}"
    file = File(name, checksum, url=f"{MULTI30K_URL}/{name}.gz", instead="")
    return published_lines(file, "multi30k", wanted)


def published_lines(file: File, folder: str, wanted: WantedPairs) -> list[str]:
    found = read_any([file], (folder,), wanted.data_dir)
    return split_lines(str(found.path), found.contents)


def newstest(described: ParallelSet, wanted: WantedPairs) -> dict[str, list[Pair]]:
    """For training files of one's own, 2013 is the validation set; without, it is for training."""
    languages = described.direction(wanted)
    earlier, later = (
        [*map(Pair, *(published_lines(NEWSTEST[year][each], "wmt14_ende", wanted) for each in languages))]
        for year in (2013, 2014)
    )
    train = own_split("train", wanted)
    return (
        {"train": earlier, "test": later}
        if train is None
        else {
            "train": train,
            "valid": earlier,
            "test": later,
        }
    )


MULTI30K_URL = (
    "https://raw.githubusercontent.com/multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a"
    "/data/task1/raw"
)
MULTI30K = {
    "train": {
        "en": "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6",
        "de": "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72",
        "fr": "5925a3c18f1587b6b54b87743106e6e8ab93618edb6f65d19eac0621f853a10d",
        "cs": "2be68b38c8d586ff4f54eb13cc6e1baaaa053695b3f070d3038303a47f2268da",
    },
    "val": {
        "en": "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227",
        "de": "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660",
        "fr": "5304e444d842e962b2dda4d816b70b22a1765b15401642b7ca37a67477e708dc",
        "cs": "d53827e469b0a1ca8d57e9e26b2b64c4bc4b33f5479c7b03ae87ae5c882c3e33",
    },
    "test_2016_flickr": {
        "en": "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182",
        "de": "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16",
        "fr": "cb3160d69b002bb638e66cc7612fcd56cb0af82eadc9c142dedc438afb885ef6",
        "cs": "45adb85f688de8407fddcbe1b36dca15d12aab868149b337e2576f2d6d2ff8d8",
    },
}
"""The checksums of the raw text, by split and language. The last split is the test set of 2016."""

GITHUB = "https://raw.githubusercontent.com"
TENSORFLOW = f"{GITHUB}/tensorflow/models/3fca8afe7eaaaa845b803ab7951ee3f3ed235208/official/transformer"
SENNRICH = f"{GITHUB}/rsennrich/wmt16-scripts/9695851c150fedbac3418915b251a75292d7d527/factored_sample"
TOKENISED = f"{GITHUB}/fridex/shackathon/24ec3bf4c812b9ff16246369b2c4ad130076a426/model"
NEWSTEST = {
    2013: {
        "en": File(
            "newstest2013.tok.en",
            "sha256:7181966e9abbd8ec3257bfd83ed8cfb63e52b5e80f27c0f5f9cf1435e0044e5e",
            url=f"{TOKENISED}/data/newstest2013.en",
            instead="",
        ),
        "de": File(
            "newstest2013.de",
            "sha256:d7ea35ab91ff3709e03ad9cb6bf5b4f2cc775cd2d72efd5254c4aec5e69663ca",
            url=f"{SENNRICH}/data/newstest2013.de",
            instead="",
        ),
    },
    2014: {
        "en": File(
            "newstest2014.en",
            "sha256:7294bccf2879a97b3706b95c9595f1459617a8ee7130d5d8581c910e69736971",
            url=f"{TENSORFLOW}/test_data/newstest2014.en",
            instead="",
        ),
        "de": File(
            "newstest2014.de",
            "sha256:ae5d110486bc33d7175e9e28c7d0051eb3e5fcd2166dd93371089852c091a20e",
            url=f"{TENSORFLOW}/test_data/newstest2014.de",
            instead="",
        ),
    },
}
"""By year and language. The English side of 2013 is tokenised."""

PARALLEL: dict[str, ParallelSet] = {
    "bible": ParallelSet(
        "verses of the King James Bible and of the World English Bible (kjv-web, web-kjv); needs no download",
        "public domain (kjv: outside the United Kingdom)",
        bible,
        languages=("kjv", "web"),
    ),
    "own": ParallelSet("two files of parallel lines (--source, --target)", "yours", own),
    "multi30k": ParallelSet(
        "29,000 captions of pictures in English, German, French and Czech (Elliott et al. 2016)",
        "for non-commercial research and education",
        multi30k,
        languages=("en", "de", "fr", "cs"),
    ),
    "newstest": ParallelSet(
        "news of WMT in English and German: newstest2014 is the test set, newstest2013 the validation set "
        "of your training files (--source, --target), or else the training set",
        "for research",
        newstest,
        languages=("en", "de"),
    ),
}
