"""Sets of labelled texts by name, their splits and folds, and how a text is split into words.

    splits = load_labelled("mr", data_dir="data", fold=0)
    splits.train[0].text, splits.train[0].label

The folds of the six sentence sets are those of SRU's authors: Python's generator with seed 1234 shuffles the
lines, every tenth line from number `fold` on is the test set, and the first nine tenths of the others, which
are shuffled again, are the training set.
"""

from __future__ import annotations

import csv
import io
import random
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from linnet.data.errors import DataError, unknown
from linnet.data.files import File, read_any
from linnet.data.kjv import labelled_verses
from linnet.data.sets import Described, WantedFiles
from linnet.data.tables import Columns, Labelled, any_field_size, read_rows
from linnet.data.text import decode_utf8
from linnet.data.vocabulary import WORD

Rows = list[Labelled]
FOLDS = 10


class WithLabel(Protocol):
    """What can be spread over folds by its class."""

    @property
    def label(self) -> str: ...


AnyRow = TypeVar("AnyRow", bound=WithLabel)


class Splits(NamedTuple):
    """The labelled texts of each split."""

    train: Rows
    valid: Rows
    test: Rows


@dataclass(frozen=True)
class Wanted(WantedFiles):
    """Which splits of which set.

    texts              the names of the columns with the texts, by the option that sets each name
    label              the name of the column with the class; of "kjv", "testament" or "book"
    kind, separator    own data: what the label is, see linnet.data.tables.Columns
    fold_count, fold   own data: test (or validation) is part `fold` of `fold_count` equal parts
    split_seed         of the folds of own data
    """

    texts: Mapping[str, str] = field(default_factory=lambda: {"text": "text"})
    label: str | None = None
    kind: str = "class"
    separator: str = ""
    fold_count: int = FOLDS
    fold: int = 0
    split_seed: int = 1


@dataclass(frozen=True)
class LabelledSet(Described):
    read: Callable[[LabelledSet, Wanted], Splits]
    files: tuple[File, ...] = ()
    folders: tuple[str, ...] = ()
    encoding: str = "utf-8"
    words: str = "punctuation"  # how texts are split, one of WORD_SPLITS
    lowercase: bool = True
    folds: int = 0  # the number of folds, if the set defines them itself
    names: dict[str, str] = field(default_factory=dict)  # of classes, by the labels in the files

    def text(self, number: int, wanted: Wanted) -> str:
        """Return the contents of a file."""
        found = read_any([self.files[number]], self.folders, wanted.data_dir)
        if self.encoding == "utf-8":
            return decode_utf8(str(found.path), found.contents)
        return found.contents.decode(self.encoding)

    def lines(self, number: int, wanted: Wanted) -> Rows:
        """Return the rows of a file with a label and a text, separated by a space, on each line."""
        rows = (line.partition(" ") for line in self.text(number, wanted).split("\n") if line)
        return [Labelled(text, self.class_name(label)) for label, _, text in rows]

    def class_name(self, label: str, first: int = 0) -> str:
        """Return the name of a label of the files, which count classes from `first`."""
        return self.names.get(str(int(label) - first) if label.isdecimal() else label, label)


def load_labelled(name: str, **options: object) -> Splits:
    """Read a set of SETS; the options are the fields of `Wanted`."""
    return load_from(SETS, name, Wanted(**options))  # type: ignore[arg-type]


def load_from(sets: Mapping[str, LabelledSet], name: str, wanted: Wanted) -> Splits:
    """Read a set of `sets` by its name."""
    if name not in sets:
        raise unknown("set", name, sets)
    source = sets[name]
    folds = source.folds or wanted.fold_count
    if not 0 <= wanted.fold < folds:
        raise DataError(f"fold must be from 0 to {folds - 1}; got {wanted.fold}")
    return source.read(source, wanted)


# ------------------------------------------------------------------------------------------- folds


def authors_folds(count: int, fold: int) -> tuple[list[int], list[int], list[int]]:
    """Return the rows of training, validation and test of SRU's authors."""
    generator = random.Random(1234)
    order = list(range(count))
    generator.shuffle(order)
    test = order[fold::FOLDS]
    rest = [row for position, row in enumerate(order) if position % FOLDS != fold]
    generator.shuffle(rest)
    cut = int(0.9 * len(rest))
    return rest[:cut], rest[cut:], test


def authors_validation(count: int, fold: int) -> tuple[list[int], list[int]]:
    """Return the rows of training and validation of SRU's authors where the test set is a file (TREC)."""
    order = list(range(count))
    random.Random(1234).shuffle(order)
    rest = [row for position, row in enumerate(order) if position % FOLDS != fold]
    return rest, order[fold::FOLDS]


def hold_out(
    rows: list[AnyRow], folds: int, fold: int, seed: int, by_label: bool = True
) -> tuple[list[AnyRow], list[AnyRow]]:
    """Return the other folds and fold number `fold`; each class is spread evenly over the folds.

    The only row of a class is never held out. Without `by_label`, all rows are of one class.
    """
    generator = random.Random(seed)
    by_class: dict[str, list[int]] = defaultdict(list)
    for number, row in enumerate(rows):
        by_class[row.label if by_label else ""].append(number)
    for numbers in by_class.values():
        generator.shuffle(numbers)
    # Classes one after another, so that a class of fewer rows than folds does not always miss the last ones.
    classes = [by_class[label] for label in sorted(by_class) if len(by_class[label]) > 1]
    dealt = [number for numbers in classes for number in numbers]
    held = set(dealt[fold::folds])
    return [row for number, row in enumerate(rows) if number not in held], [rows[n] for n in sorted(held)]


def completed(train: Rows, valid: Rows | None, test: Rows | None, wanted: Wanted) -> Splits:
    """Take the splits that are missing from the training rows."""
    folds, fold, seed = wanted.fold_count, wanted.fold, wanted.split_seed
    by_label = wanted.kind == "class"
    if test is None:
        train, test = hold_out(train, folds, fold, seed, by_label)
        if valid is None:
            train, valid = hold_out(train, FOLDS, 0, seed, by_label)
    elif valid is None:
        train, valid = hold_out(train, folds, fold, seed, by_label)
    return Splits(train, valid, test)


# ------------------------------------------------------------------------------- how each set is read


def one_file(source: LabelledSet, wanted: Wanted) -> Splits:
    rows = source.lines(0, wanted)
    return Splits(*([rows[number] for number in part] for part in authors_folds(len(rows), wanted.fold)))


def train_and_test(source: LabelledSet, wanted: Wanted) -> Splits:
    rows = source.lines(0, wanted)
    train, valid = authors_validation(len(rows), wanted.fold)
    return Splits([rows[n] for n in train], [rows[n] for n in valid], source.lines(1, wanted))


def three_files(source: LabelledSet, wanted: Wanted) -> Splits:
    train, valid, test = (source.lines(number, wanted) for number in range(3))
    random.Random(1234).shuffle(train)
    return Splits(train, valid, test)


def imdb(source: LabelledSet, wanted: Wanted) -> Splits:
    train, test = (csv_rows(source, number, wanted, label=0, text=(1,))[1:] for number in (0, 1))
    return completed(train, None, test, wanted)


def agnews(source: LabelledSet, wanted: Wanted) -> Splits:
    """The sample has a noisy label and the true class; the test has a title and a description."""
    train = csv_rows(source, 0, wanted, label=1, text=(2,))[1:]
    # The test counts classes from 1, the sample from 0.
    test = csv_rows(source, 1, wanted, label=0, text=(1, 2), first=1)
    return completed(train, None, test, wanted)


BREAKS = re.compile(r"<br />|\\n|\\(?!\")")


def csv_rows(
    source: LabelledSet, number: int, wanted: Wanted, *, label: int, text: Sequence[int], first: int = 0
) -> Rows:
    """Return the rows of a csv file by the numbers of their columns, without breaks of lines.

    first   the number of the first class in this file; `names` counts from 0
    """
    contents = source.text(number, wanted)
    with any_field_size(len(contents)):
        rows = [*csv.reader(io.StringIO(contents, newline=""))]
    return [
        Labelled(joined([row[column] for column in text]), source.class_name(row[label], first))
        for row in rows
    ]


def joined(texts: Sequence[str]) -> str:
    return BREAKS.sub(" ", " ".join(texts)).replace('\\"', '"')


def kjv(source: LabelledSet, wanted: Wanted) -> Splits:
    by = wanted.label or "testament"
    return Splits(*([Labelled(text, label) for text, label in part] for part in labelled_verses(by)))


def own(source: LabelledSet, wanted: Wanted) -> Splits:
    if wanted.path is None:
        raise DataError("the set 'own' is a file or a folder of yours; give its path (path=, --path)")
    return own_files(wanted, read_rows)


def own_files(wanted: Wanted, read: Callable[[str | Path, Columns], Rows]) -> Splits:
    columns = Columns(wanted.texts, wanted.label or "label", wanted.kind, wanted.separator)
    train, valid, test = (
        read(path, columns) if path else None for path in (wanted.path, wanted.valid_path, wanted.test_path)
    )
    assert train is not None
    return completed(train, valid, test, wanted)


# ---------------------------------------------------------------------------------------- the list


def sentences(name: str, about: str, *files: tuple[str, str], **more: object) -> LabelledSet:
    """A set of SRU's Table 1."""
    known = tuple(File(file, f"sha256:{checksum}", instead="") for file, checksum in files)
    options = {"words": "clean", "folds": FOLDS, "names": {"0": "negative", "1": "positive"}, **more}
    return LabelledSet(about, TERMS, files=known, folders=("sentclass", name), **options)  # type: ignore[arg-type]


TERMS = "no terms are stated; the papers use it for research"
SETS: dict[str, LabelledSet] = {
    "kjv": LabelledSet(
        "verses of the King James Bible by testament (--label book: by book); needs no download",
        "public domain",
        kjv,
    ),
    "own": LabelledSet("your own file or folder (--path)", "yours", own),
    "cr": sentences(
        "cr",
        "customer reviews: positive or negative (Hu and Liu 2004); 10 folds",
        ("custrev.all", "a3839a79bd3285177a07158c6104b49038a7a06ab2abe897734cde5d22e5e325"),
        read=one_file,
    ),
    "subj": sentences(
        "subj",
        "subjective or objective sentences (Pang and Lee 2004); 10 folds",
        ("subj.all", "f3ffbe2aa8e4f3ba3e63e46dce51613854edbca122fb3aa758b9bce047ded23c"),
        read=one_file,
        encoding="latin-1",
        names={"0": "subjective", "1": "objective"},
    ),
    "mr": sentences(
        "mr",
        "movie reviews: positive or negative sentences (Pang and Lee 2005); 10 folds",
        ("rt-polarity.all", "b8846c3bbd59241f901efdc58f7c515e4b280ab3561fd1858caa5aa48da95a8a"),
        read=one_file,
        encoding="latin-1",
    ),
    "trec": sentences(
        "trec",
        "questions by the kind of answer, six classes (Li and Roth 2002); 10 folds of validation",
        ("TREC.train.all", "c8183fd8c2a5cc4a9a1c56548d7c6410a8b71ed7843df9ef1f0a05cd7cf2fb3e"),
        ("TREC.test.all", "92a6a3cede5678b447ef5f1d7ec474134fcda211e6590e6fa627b4a2c68e4566"),
        read=train_and_test,
        encoding="latin-1",
        names=dict(
            zip(
                "012345",
                ("description", "entity", "abbreviation", "human", "location", "number"),
                strict=True,
            )
        ),
    ),
    "mpqa": sentences(
        "mpqa",
        "phrases: positive or negative opinions (Wiebe et al. 2005); 10 folds",
        ("mpqa.all", "661de8a069da4b9845fc8b9ae59cc97ffe554f3018fa6bf0e640e3d626a4eaf7"),
        read=one_file,
    ),
    "sst": sentences(
        "sst",
        "Stanford sentiment treebank, whole sentences: positive or negative (Socher et al. 2013)",
        ("stsa.binary.train", "71c04bcc41291fa47454dd670df701b14ee9249156babeaac404cfe2c8d74338"),
        ("stsa.binary.dev", "02fedc82855dbdcabe82c65ed1af6c6570788eaac51073cdb35ee8c7784426d1"),
        ("stsa.binary.test", "6a80dc9b9a0db2d3b37f2f809304febad31c90ab67a5b4157b7d9f881c53ef5b"),
        read=three_files,
        words="blanks",
        folds=1,
    ),
    "imdb": LabelledSet(
        "long movie reviews: positive or negative, 25,000 and 25,000 for the test (Maas et al. 2011)",
        TERMS,
        imdb,
        files=(
            File(
                "train.csv",
                "sha256:6a6feae701ef239f98ff034ae0112a12cba23e7b8c9d39289917662cb5126c23",
                instead="",
            ),
            File(
                "test.csv",
                "sha256:8edfa2f869ecbdb4e69487a64f4926310557e0066da603f44c63da6ca1a42def",
                instead="",
            ),
        ),
        folders=("imdb",),
        words="marks",
        names={"0": "negative", "1": "positive"},
    ),
    "agnews": LabelledSet(
        "news by topic, four classes: 10,000 of the 120,000 training texts and the test (Zhang et al. 2015)",
        "for research and other non-commercial use",
        agnews,
        files=(
            File(
                "train_sample10000.csv",
                "sha256:b8d073074344b16bcf53357ba236bc832abe125fe4ce9dea4e5a72371f6265f7",
                instead="",
            ),
            File(
                "test.csv",
                "sha256:521465c2428ed7f02f8d6db6ffdd4b5447c1c701962353eb2c40d548c3c85699",
                instead="",
            ),
        ),
        folders=("agnews",),
        words="marks",
        names={"0": "World", "1": "Sports", "2": "Business", "3": "Sci/Tech"},
    ),
}


# ------------------------------------------------------------------------------------------- words

MARK = re.compile(r"\w+|[^\w\s]")
BLANKS = re.compile(r"\S+")
# What SRU's authors replace in a text, in this order; {} is what was found.
CLEANING = (
    (re.compile(r"[^A-Za-z0-9(),!?'`]"), " "),
    (re.compile(r"'s|'ve|n't|'re|'d|'ll"), " {}"),
    (re.compile(r"[,!]"), " {} "),
    (re.compile(r"[()?]"), " \\{} "),
)


def clean_words(text: str) -> list[str]:
    """Split as SRU's authors do: in lower case, and with a backslash in front of ( ) and ?."""
    for pattern, replacement in CLEANING:
        text = pattern.sub(lambda found, new=replacement: new.format(found[0]), text)  # type: ignore[misc]
    return BLANKS.findall(text.lower())


# What is replaced in texts with markup, in this order: the tags of HTML, then the most frequent entities.
TAGS = (
    *("a", "abbr", "b", "big", "blockquote", "br", "center", "code", "div", "em", "font", "h1", "h2", "h3"),
    *("h4", "h5", "h6", "hr", "i", "img", "li", "ol", "p", "pre", "s", "small", "span", "strong", "sub"),
    *("sup", "table", "tbody", "td", "th", "thead", "tr", "tt", "u", "ul"),
)
# Without a flag for upper case, as pages in JavaScript use the pattern too.
ANY_CASE = "|".join("".join(f"[{c}{c.upper()}]" if c.isalpha() else c for c in tag) for tag in TAGS)
ATTRIBUTE = r"""\s+[\w:-]+\s*=\s*(?:"[^"]*"|'[^']*'|[^\s"'<>]+)"""
MARKUP = (
    (re.compile(rf"</?(?:{ANY_CASE})(?:{ATTRIBUTE})*\s*/?>"), " "),
    (re.compile("&nbsp;"), " "),
    (re.compile("&quot;"), '"'),
    (re.compile("&(?:apos|#0?39);"), "'"),
    (re.compile("&lt;"), "<"),
    (re.compile("&gt;"), ">"),
    (re.compile("&amp;"), "&"),
)


def without_markup(text: str) -> str:
    """Return a text without the tags of HTML, and with its most frequent entities as characters."""
    if "<" not in text and "&" not in text:
        return text
    for pattern, replacement in MARKUP:
        text = pattern.sub(replacement, text)
    return text


# Patterns that find the words of a text.
WORD_PATTERNS = {"punctuation": WORD, "marks": MARK, "blanks": BLANKS}
WORD_SPLITS: dict[str, Callable[[str], list[str]]] = {
    **{name: pattern.findall for name, pattern in WORD_PATTERNS.items()},
    "clean": clean_words,
}
"""punctuation: marks are words, and 's too; marks: each mark is a word, as for BERT; blanks: at spaces only;
clean: as SRU's authors split sentences."""
