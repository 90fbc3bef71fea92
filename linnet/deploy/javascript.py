"""Export of models to JavaScript."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from linnet.deploy.exported import exported_program, stream_step_of

if TYPE_CHECKING:
    from linnet.deploy.step.program import Program
    from linnet.models.stream_step import StreamStep


def export_js(
    model: nn.Module,
    folder: str | PathLike[str],
    *,
    example: tuple[Tensor, Any] | None = None,
    int8: bool = False,
    skip: Sequence[str] = (),
    flush_denormals: bool = False,
    vocabulary: Sequence[str | bytes] | None = None,
) -> Path:
    """Write one step of `model` as an ES module, `model.js`, with its types, and return the folder.

        linnet.export_js(model, "web")

    example           x and state, for a module of your own whose forward(x, state) returns y and the new
                      state: a batch of one, the state at the start. docs/deploy.md says what it may contain
    int8              export linnet.quantize(model); with an example, round the matrices of all products. A
                      model that is quantised already is exported as it is
    skip              names of modules of an example that stay in float32 with int8=True
    flush_denormals   numbers below 1e-30 in the state become 0 after each step: silence stays fast
    vocabulary        the texts of the tokens, which the module then has too

    Without an example, the model is a stack, a language model, tagger, classifier or sequence model that
    reads in one direction, or an nn.Sequential of nn.Embedding, stacks and other layers.
    """
    from linnet.deploy.source.javascript import module_of
    from linnet.deploy.source.stream import names_text

    program = exported_program(model, example, int8, skip, flush_denormals, keep_values=True)
    texts = None if vocabulary is None else [as_text(token) for token in vocabulary]
    step = stream_step_of(model)
    text = module_of(program, texts, names=names_text(step))
    scratch_bytes = 4 * sum(program.scratch.values())
    return write_module(Path(folder), text, program, "js", scratch_bytes, step)


def write_module(
    folder: Path, text: str, program: Program, target: str, scratch_bytes: int, step: StreamStep | None
) -> Path:
    """Write a module with its types and a README; `scratch_bytes` is the memory that steps work in."""
    from linnet.deploy.source.folder import filled, new_folder
    from linnet.deploy.source.stream import example_module, readme_section

    numbers = "ArrayLike<number>"
    # The JavaScript module also takes the vector of a token in place of the token.
    token = f"number | {numbers}" if target == "js" else "number"
    kind = token if program.tokens else numbers
    frames = numbers if program.tokens else "Float32Array"
    files = {
        "model.js": text,
        "model.d.ts": filled(
            "model.d.ts" if target == "js" else "wasm.d.ts", {"INPUT": kind, "INPUTS": frames}
        ),
        "README.md": filled(
            "README.js.md",
            memory_of(program, text, target, scratch_bytes)
            | {"STREAM": readme_section(step, "node main.mjs < values.csv")},
        ),
        "package.json": '{ "type": "module", "main": "model.js" }\n',
    }
    if step is not None:
        files["main.mjs"] = example_module(step)
    record = {"target": target, "int8": program.is_int8, "fingerprint": program.fingerprint}
    with new_folder(folder, record) as work:
        for name, contents in files.items():
            (work / name).write_text(contents, encoding="utf-8")
    return folder


def memory_of(program: Program, text: str, target: str, scratch_bytes: int) -> dict[str, str]:
    """What the README of a module says."""
    return {
        "LANGUAGE": "WebAssembly" if target == "wasm" else "JavaScript",
        "COUNTS": program.counts,
        "KIND": "int8" if program.is_int8 else "float32",
        "MODULE_BYTES": f"{len(text.encode()):,}",
        "CONSTANT_BYTES": f"{program.constant_bytes:,}",
        "STATE_BYTES": f"{program.state_bytes:,}",
        "SCRATCH_BYTES": f"{scratch_bytes:,}",
        "INPUT": "token" if program.tokens else "input",
        "INPUTS": "tokens" if program.tokens else "inputs",
    }


def as_text(token: str | bytes) -> str:
    """Bytes as the characters of the same numbers."""
    return token if isinstance(token, str) else token.decode("latin-1")
