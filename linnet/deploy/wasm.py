"""Export of models to WebAssembly."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from linnet.base.project import advice
from linnet.deploy.exported import exported_program, stream_step_of
from linnet.deploy.javascript import as_text, write_module


def export_wasm(
    model: nn.Module,
    folder: str | PathLike[str],
    *,
    example: tuple[Tensor, Any] | None = None,
    int8: bool = False,
    skip: Sequence[str] = (),
    flush_denormals: bool = False,
    vocabulary: Sequence[str | bytes] | None = None,
) -> Path:
    """Write one step of `model` as WebAssembly with SIMD in an ES module, `model.js`, and return the folder.

    The arguments and the calls of the module are those of `linnet.export_js`, but it has no `values`. This
    needs the package ziglang, which has a C compiler: the extra `wasm`.
    """
    if find_spec("ziglang") is None:
        raise ImportError(f"export_wasm needs the package ziglang: {advice('wasm')}")
    from linnet.deploy.c import check_size
    from linnet.deploy.source.c import scratch_bytes
    from linnet.deploy.source.stream import names_text
    from linnet.deploy.source.wasm import compiled, wasm_module

    program = exported_program(model, example, int8, skip, flush_denormals)
    check_size(program, "arrays")
    with tempfile.TemporaryDirectory() as work:
        code = compiled(program, Path(work))
    texts = None if vocabulary is None else [as_text(token) for token in vocabulary]
    step = stream_step_of(model)
    text = wasm_module(program, code, texts, names_text(step))
    return write_module(Path(folder), text, program, "wasm", scratch_bytes(program), step)
