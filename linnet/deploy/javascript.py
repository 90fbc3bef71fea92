"""Export of models to JavaScript."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from linnet.deploy.quantize import in_int8

if TYPE_CHECKING:
    from linnet.deploy.step.program import Program


def export_js(
    model: nn.Module,
    folder: str | PathLike[str],
    *,
    int8: bool = False,
    vocabulary: Sequence[str | bytes] | None = None,
) -> Path:
    """Write one step of `model` as an ES module, `model.js`, with its types, and return the folder.

        linnet.export_js(model, "web")

    int8         export linnet.quantize(model). A model that is quantised already is exported as it is
    vocabulary   the texts of the tokens, which the module then has too

    The model is a stack, a language model, tagger, classifier or sequence model that reads in one direction,
    or an nn.Sequential of nn.Embedding, stacks and other layers. See docs/deploy.md.
    """
    # Imported here, not above: models of all tasks are not needed to import Linnet.
    from linnet.deploy.source.javascript import module_of
    from linnet.deploy.step.build import program_of

    model = in_int8(model) if int8 else model
    program = program_of(model, keep_values=True)
    texts = None if vocabulary is None else [as_text(token) for token in vocabulary]
    text = module_of(program, texts)
    return write_module(Path(folder), text, program, "js")


def write_module(folder: Path, text: str, program: Program, target: str) -> Path:
    """Write a module with its types."""
    from linnet.deploy.source.folder import filled, new_folder

    numbers = "ArrayLike<number>"
    # The JavaScript module also takes the vector of a token in place of the token.
    token = f"number | {numbers}" if target == "js" else "number"
    kind = token if program.tokens else numbers
    files = {
        "model.js": text,
        "model.d.ts": filled("model.d.ts" if target == "js" else "wasm.d.ts", {"INPUT": kind}),
        "package.json": '{ "type": "module", "main": "model.js" }\n',
    }
    record = {"target": target, "int8": program.is_int8, "fingerprint": program.fingerprint}
    with new_folder(folder, record) as work:
        for name, contents in files.items():
            (work / name).write_text(contents, encoding="utf-8")
    return folder


def as_text(token: str | bytes) -> str:
    """Bytes as the characters of the same numbers."""
    return token if isinstance(token, str) else token.decode("latin-1")
