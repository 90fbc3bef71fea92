"""Programs around a model in C: one that compares it with Python, and one that continues a text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from torch import Tensor

from linnet.deploy.source.c import float_text, indented, wrapped
from linnet.deploy.source.folder import filled
from linnet.deploy.step.program import INPUT, OUTPUT, Program
from linnet.runs.untrusted import harmless

Texts = Sequence[str | bytes]
INT8_NOTE = """/* In int8, a last digit of difference may round a number to another of 127 levels. */
"""
# Control characters but newline and tab.
CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")
UNKNOWN, END_OF_LINE = "<unk>", "<eos>"


def weights_parts(name: str, weights_file: bool) -> dict[str, str]:
    """The text about weights in a file that a program prints."""
    if not weights_file:
        return {"READER": "", "LOAD": "", "WEIGHTS_GIVEN": ""}
    return {
        "READER": filled("reader.c", {"NAME": name}),
        "LOAD": "    if (!read_weights()) return 1;\n",
        "WEIGHTS_GIVEN": "weights, ",
    }


def test_program(program: Program, inputs: Tensor, outputs: Tensor, name: str, weights_file: bool) -> str:
    parts = {
        "NAME": name,
        "PREFIX": name.upper(),
        "STEPS": str(len(inputs)),
        "TOLERANCE": "0.05" if program.is_int8 else "1e-5",
        "TOLERANCE_NOTE": INT8_NOTE if program.is_int8 else "",
        "INCLUDES": "#include <stdlib.h>\n" if weights_file else "",
        "INPUTS": inputs_text(program, inputs),
        "EXPECTED": indented(rows_text(outputs)),
        **weights_parts(name, weights_file),
    }
    return filled("test.c", parts)


def inputs_text(program: Program, inputs: Tensor) -> str:
    if program.tokens:
        return f"static const int32_t inputs[{len(inputs)}] = {{{', '.join(map(str, inputs.tolist()))}}};"
    head = f"static const float inputs[{len(inputs)}][{program.sizes[INPUT]}] = {{"
    return f"{head}\n    {indented(rows_text(inputs))}\n}};"


def rows_text(rows: Tensor) -> Iterator[str]:
    for row in rows.tolist():
        yield "{"
        yield from wrapped([float_text(value) for value in row])
        yield "},"


# ------------------------------------------------------------------------------------------ text


def continues_texts(program: Program, vocabulary: Texts | None) -> bool:
    """Whether the output is a score for each token."""
    return vocabulary is not None and program.tokens == program.sizes[OUTPUT] == len(vocabulary)


def text_program(vocabulary: Texts, name: str, weights_file: bool) -> str:
    """main.c: tokens of one character each are read one after the other, others are words between blanks."""
    special = (UNKNOWN, END_OF_LINE)
    starts = (number for number, token in enumerate(vocabulary) if token in ("\n", b"\n", END_OF_LINE))
    parts = {
        "NAME": name,
        "PREFIX": name.upper(),
        "PIECES": indented(piece_text(token) for token in vocabulary),
        "FIRST": str(next(starts, 0)),
        "UNKNOWN": str(next((n for n, token in enumerate(vocabulary) if token == UNKNOWN), -1)),
        "WORDS": str(int(any(len(token) > 1 and token not in special for token in vocabulary))),
        **weights_parts(name, weights_file),
    }
    return filled("main.c", parts)


def piece_text(token: str | bytes) -> str:
    """A token, and how it is shown if that is different."""
    data = token.encode("utf-8", "surrogatepass") if isinstance(token, str) else token
    shown = shown_bytes(token)
    return f"{{{len(data)}, {literal(data)}, {0 if shown == data else literal(shown)}}},"


def shown_bytes(token: str | bytes) -> bytes:
    """A token without control characters; bytes that are no text on their own may be a part of a letter."""
    try:
        text = token.decode() if isinstance(token, bytes) else token
    except UnicodeDecodeError as error:
        return CONTROL.sub(lambda found: b"\\x%02x" % found[0][0], error.object)
    return harmless(text).encode()


def literal(data: bytes) -> str:
    """Bytes other than letters in octal, which takes at most three digits: nothing after it is part of it."""
    plain = bytes(range(32, 127)).translate(None, b'"\\?')
    return '"' + "".join(chr(byte) if byte in plain else f"\\{byte:03o}" for byte in data) + '"'
