"""Export of models to JavaScript."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from torch import nn

from linnet.deploy.quantize import in_int8


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
    from linnet.deploy.source.folder import filled, new_folder
    from linnet.deploy.source.javascript import module_of
    from linnet.deploy.step.build import program_of

    model = in_int8(model) if int8 else model
    program = program_of(model, keep_values=True)
    texts = None if vocabulary is None else [as_text(token) for token in vocabulary]
    text = module_of(program, texts)
    record = {"target": "js", "int8": program.is_int8, "fingerprint": program.fingerprint}
    with new_folder(Path(folder), record) as work:
        (work / "model.js").write_text(text, encoding="utf-8")
        kind = "number | ArrayLike<number>" if program.tokens else "ArrayLike<number>"
        (work / "model.d.ts").write_text(filled("model.d.ts", {"INPUT": kind}), encoding="utf-8")
        (work / "package.json").write_text('{ "type": "module", "main": "model.js" }\n', encoding="utf-8")
    return Path(folder)


def as_text(token: str | bytes) -> str:
    """Bytes as the characters of the same numbers."""
    return token if isinstance(token, str) else token.decode("latin-1")
