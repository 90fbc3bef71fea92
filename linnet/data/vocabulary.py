"""Text to numbers and back: words, characters, bytes, or pieces of words (BPE).

A vocabulary contains everything that its encoding depends on, so that it can be saved with a model: the
tokens in the order of their numbers, how a text is split into words, whether case counts.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from linnet.base.files import write_atomically
from linnet.base.project import advice
from linnet.data.errors import DataError, unknown

if TYPE_CHECKING:
    import tokenizers

EOS, UNK = "<eos>", "<unk>"
LEVELS = ("word", "char", "byte", "bpe")

# How a text is split into words, at level "word":
#   blanks       at spaces only, for text that is already tokenised (ptb, wikitext2, ...)
#   punctuation  also before punctuation marks and apostrophes (wife 's)
WORDS = ("blanks", "punctuation")
WORD = re.compile(r"<\w+>|\w+(?:-\w+)*|(?<=\w)['’]\w+|[^\w\s]")  # noqa: RUF001
GLUED_TO_THE_LEFT = re.compile(r" (?=[,.;:!?)\]]|['’]\w)")  # noqa: RUF001
GLUED_TO_THE_RIGHT = re.compile(r"(?<=[(\[]) ")

# numpy converts every index to eight bytes; this many at a time stay in the cache.
CHUNK = 2**16


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a language model; the number of a token is its index in `tokens`."""

    level: str
    tokens: tuple[str, ...]
    words: str = "blanks"  # at level "word", one of WORDS
    lowercase: bool = False
    merges: tuple[str, ...] = ()  # at level "bpe": the merges, in order

    def __repr__(self) -> str:
        more = ", ..." if len(self.tokens) > 5 else ""
        first = ", ".join(map(repr, self.tokens[:5]))
        return f"Vocabulary({len(self.tokens):,} tokens by {self.level}: {first}{more})"

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise unknown("level", self.level, LEVELS)
        if self.words not in WORDS:
            raise unknown("way to split words", self.words, WORDS)
        if len(self.index) != len(self.tokens):
            twice = next(token for token, count in Counter(self.tokens).items() if count > 1)
            raise DataError(f"the tokens of a vocabulary must differ; {twice!r} occurs twice")
        if not self.tokens:
            raise DataError("a vocabulary needs at least one token; got none")
        self.check_bytes()
        self.check_merges()

    def check_bytes(self) -> None:
        wrong = next((token for token in self.tokens if len(token) != 1 or ord(token) > 255), None)
        if self.level == "byte" and wrong is not None:
            raise DataError(f"the tokens of level 'byte' must be single bytes; got {wrong!r}")

    def check_merges(self) -> None:
        """Check that the tokens of each merge, and its result, are in the vocabulary."""
        for merge in self.merges:
            pair = merge.split(" ")
            if len(pair) != 2 or not {*pair, "".join(pair)} <= self.index.keys():
                raise DataError(f"a merge must join two tokens into a third; got {merge!r}")

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def index(self) -> dict[str, int]:
        """The number of each token."""
        return {token: number for number, token in enumerate(self.tokens)}

    @property
    def unk(self) -> int | None:
        """The number of <unk>, which replaces unknown tokens; None if there is no <unk>."""
        return self.index.get(UNK) if self.level in ("word", "char") else None

    @property
    def fingerprint(self) -> str:
        """Sixteen hex digits that differ for different vocabularies."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]

    def encode(self, text: str | bytes) -> Tensor:
        """Return the numbers [n] of the tokens of a text; a text is bytes only at level "byte"."""
        if isinstance(text, bytes):
            if self.level != "byte":
                raise DataError(f"a vocabulary of level {self.level!r} encodes str; got bytes")
            return torch.from_numpy(self.encode_codes(np.frombuffer(text, np.uint8)))
        text = text.lower() if self.lowercase else text
        if self.level == "word":
            return torch.from_numpy(self.encode_words(split_words(text, self.words)))
        if self.level == "char":
            return torch.from_numpy(self.encode_codes(code_points(text)))
        if self.level == "byte":
            return self.encode(text.encode())
        return torch.from_numpy(self.encode_pieces(text))

    def decode(self, ids: Tensor | Iterable[int]) -> str:
        """Return the text of a sequence of numbers."""
        numbers = ids.tolist() if isinstance(ids, Tensor) else [int(number) for number in ids]
        wrong = next((number for number in numbers if not 0 <= number < len(self)), None)
        if wrong is not None:
            raise DataError(f"the numbers of {len(self):,} tokens are 0 to {len(self) - 1}; got {wrong}")
        tokens = [self.tokens[number] for number in numbers]
        if self.level == "word":
            return join_words(tokens, self.words)
        if self.level == "byte":
            return "".join(tokens).encode("latin-1").decode("utf-8", errors="replace")
        return "".join(tokens) if self.level == "char" else self.tokenizer.decode(numbers)

    # ------------------------------------------------------------------------------ on disk

    def to_json(self) -> str:
        fields = {"level": self.level, "words": self.words, "lowercase": self.lowercase}
        return json.dumps({**fields, "tokens": self.tokens, "merges": self.merges}, ensure_ascii=False)

    def save(self, path: str | Path) -> None:
        write_atomically(Path(path), self.to_json().encode())

    @classmethod
    def load(cls, path: str | Path) -> Vocabulary:
        return cls.parse(str(path), Path(path).read_bytes())

    @classmethod
    def parse(cls, where: str, contents: bytes) -> Vocabulary:
        """Return the vocabulary in the contents of a file, which are not trusted."""
        try:
            fields = json.loads(contents)
            fields.update({name: strings(name, fields[name]) for name in ("tokens", "merges")})
            return cls(**fields)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise DataError(f"{where} is not a vocabulary saved by Linnet: {error}") from error

    # --------------------------------------------------------------------------- each level

    def encode_words(self, words: Sequence[str]) -> np.ndarray:
        if self.unk is not None:
            get, unk = self.index.get, self.unk
            return np.fromiter((get(word, unk) for word in words), np.int64, len(words))
        try:
            return np.fromiter(map(self.index.__getitem__, words), np.int64, len(words))
        except KeyError as error:
            place = words.index(error.args[0])
            raise self.not_known(error.args[0], place) from None

    def encode_codes(self, codes: np.ndarray) -> np.ndarray:
        """Encode characters or bytes with a table."""
        numbers = np.empty(len(codes), np.int64)
        for start in range(0, len(codes), CHUNK):
            part = slice(start, start + CHUNK)
            np.take(self.table, codes[part], out=numbers[part], mode="clip")
        return self.filled(numbers, codes) if len(numbers) and numbers.min() < 0 else numbers

    def filled(self, numbers: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Replace unknown codes by <unk>; raise an error if there is no <unk>."""
        if self.unk is None:
            place = int(np.argmax(numbers < 0))
            raise self.not_known(chr(int(codes[place])), place)
        return np.where(numbers < 0, self.unk, numbers)

    @cached_property
    def table(self) -> np.ndarray:
        """Return the number of each code, -1 for unknown ones; the last entry stands for all larger codes."""
        codes = {ord(token): number for token, number in self.index.items() if len(token) == 1}
        table = np.full(max(codes, default=0) + 2, -1, np.int64)
        table[list(codes)] = list(codes.values())
        return table

    def encode_pieces(self, text: str) -> np.ndarray:
        lines = self.tokenizer.encode_batch_fast(text.splitlines(keepends=True))
        return np.concatenate([np.zeros(0, np.int64), *(np.array(line.ids, np.int64) for line in lines)])

    @cached_property
    def tokenizer(self) -> tokenizers.Tokenizer:
        bpe = tokenizers_package()
        merges = [tuple(merge.split(" ")) for merge in self.merges]
        return with_bytes(bpe, bpe.models.BPE(vocab=self.index, merges=merges))

    def not_known(self, token: str, place: int) -> DataError:
        kind = {"word": "word", "char": "character", "byte": "byte"}[self.level]
        shown = f"0x{ord(token):02x}" if self.level == "byte" else repr(token)
        return DataError(
            f"the vocabulary of {len(self):,} {kind}s has no {shown}, which is {kind} {place:,} of the text, "
            f"and no {UNK} to replace it"
        )


def strings(name: str, values: Any) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise DataError(f"{name} must be a list of strings")
    return tuple(values)


# ----------------------------------------------------------------------------------------- words


def split_words(text: str, words: str) -> list[str]:
    """Return the words of a text; the end of a line is a word, with or without a space before it."""
    text = text.replace("\n", f" {EOS} ")
    return text.split() if words == "blanks" else WORD.findall(text)


def join_words(tokens: Iterable[str], words: str) -> str:
    text = " ".join("\n" if token == EOS else token for token in tokens)
    text = text.replace(" \n", "\n").replace("\n ", "\n")
    if words == "blanks":
        return text
    return GLUED_TO_THE_RIGHT.sub("", GLUED_TO_THE_LEFT.sub("", text))


def word_vocabulary(
    train: str, *, words: str = "blanks", lowercase: bool = False, size: int | None = None, least: int = 1
) -> Vocabulary:
    """Return the words of the training text by frequency, then alphabetically (RAN, SCRN).

    size: the maximum number of tokens, including <unk> and <eos>.
    least: the least number of occurrences of a word. Rarer words become <unk>.
    """
    train = train.lower() if lowercase else train
    counts = Counter(split_words(train, words))
    kept = [word for word in by_frequency(counts) if counts[word] >= least and word != UNK]
    if size is not None:
        check_vocabulary_size(size, 2)
        kept = kept[: size - 1]
    tally = {word: counts[word] for word in kept}
    # <unk> is sorted by the total frequency of the words that it replaces.
    tally[UNK] = counts.total() - sum(tally.values())
    return Vocabulary("word", tuple(by_frequency(tally)), words, lowercase)


def words_as_they_appear(
    texts: Iterable[str], *, words: str = "blanks", lowercase: bool = False
) -> Vocabulary:
    """Return the words of all parts in order of appearance (LRN, mixture of softmaxes)."""
    seen: dict[str, None] = {}
    for text in texts:
        seen.update(dict.fromkeys(split_words(text.lower() if lowercase else text, words)))
    return Vocabulary("word", tuple(seen), words, lowercase)


def by_frequency(counts: dict[str, int]) -> list[str]:
    return sorted(counts, key=lambda word: (-counts[word], word))


def check_vocabulary_size(size: int, least: int) -> None:
    if isinstance(size, bool) or not isinstance(size, int) or size < least:
        raise DataError(f"vocabulary_size must be an integer of at least {least}; got {size!r}")


# ---------------------------------------------------------------------------- characters and bytes


def code_points(text: str) -> np.ndarray:
    if text.isascii():  # one byte each instead of four
        return np.frombuffer(text.encode("ascii"), np.uint8)
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def counted(codes: np.ndarray) -> np.ndarray:
    """Return the number of occurrences of each code."""
    counts = np.zeros(int(codes.max(initial=0)) + 1, np.int64)
    step = max(CHUNK, len(counts))
    for start in range(0, len(codes), step):
        counts += np.bincount(codes[start : start + step], minlength=len(counts))
    return counts


def char_vocabulary(texts: Iterable[str], *, lowercase: bool = False, size: int | None = None) -> Vocabulary:
    """Return the characters of all parts by frequency; <unk> is added only if `size` excludes some."""
    counts: Counter[str] = Counter()
    for text in texts:
        found = counted(code_points(text.lower() if lowercase else text))
        counts.update({chr(code): int(found[code]) for code in np.flatnonzero(found)})
    if size is not None:
        check_vocabulary_size(size, 2)
    if size is None or len(counts) <= size:
        return Vocabulary("char", tuple(by_frequency(counts)), lowercase=lowercase)
    tally = {char: counts[char] for char in by_frequency(counts)[: size - 1]}
    tally[UNK] = counts.total() - sum(tally.values())
    return Vocabulary("char", tuple(by_frequency(tally)), lowercase=lowercase)


def byte_vocabulary(contents: Iterable[bytes] | None = None) -> Vocabulary:
    """Return the bytes that occur in `contents`, by value; all 256 without contents."""
    if contents is None:
        return Vocabulary("byte", tuple(map(chr, range(256))))
    found = {
        int(code) for part in contents for code in np.flatnonzero(counted(np.frombuffer(part, np.uint8)))
    }
    return Vocabulary("byte", tuple(map(chr, sorted(found))))


# ------------------------------------------------------------------------------------------- BPE


def tokenizers_package() -> Any:
    try:
        import tokenizers
        import tokenizers.decoders
        import tokenizers.models
        import tokenizers.pre_tokenizers
        import tokenizers.trainers
    except ImportError as error:
        raise ImportError(f"level 'bpe' needs the package tokenizers: {advice('lm')}") from error
    return tokenizers


def with_bytes(bpe: Any, model: Any) -> tokenizers.Tokenizer:
    """Make a tokenizer of byte-level pieces, which can spell any text."""
    tokenizer = bpe.Tokenizer(model)
    tokenizer.pre_tokenizer = bpe.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = bpe.decoders.ByteLevel()
    return tokenizer


def bpe_vocabulary(train: str, *, lowercase: bool = False, size: int = 10_000) -> Vocabulary:
    """Learn `size` pieces from the training text: the 256 bytes and the most frequent pairs."""
    bpe = tokenizers_package()
    check_vocabulary_size(size, 257)
    alphabet = sorted(bpe.pre_tokenizers.ByteLevel.alphabet())
    trainer = bpe.trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    tokenizer = with_bytes(bpe, bpe.models.BPE())
    text = train.lower() if lowercase else train
    tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    # A merge is a pair, or in older versions one string with a space between; no piece contains a space.
    merges = (merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"])
    return Vocabulary("bpe", tuple(tokens), lowercase=lowercase, merges=tuple(merges))
