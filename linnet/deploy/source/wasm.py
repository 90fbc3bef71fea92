"""The C of a model, compiled to WebAssembly by Zig's C compiler, in an ES module."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from linnet.deploy.source.c import source_files
from linnet.deploy.source.folder import filled
from linnet.deploy.step.program import INPUT, OUTPUT, Program

FUNCTIONS = ("address_of_state", "address_of_inputs", "address_of_outputs", "start", "run")
# Inputs and outputs of a block of steps, at most so many numbers of each.
MOST_NUMBERS = 16384
OPTIONS = ("-target", "wasm32-freestanding", "-mcpu=generic+simd128", "-std=c99", "-O3", "-nostdlib")


def compiled(program: Program, folder: Path) -> bytes:
    """The code, compiled in `folder`, a temporary one."""
    kind = "int32_t" if program.tokens else "float"
    glue = filled("wasm.c", {"KIND": kind, "BLOCK": str(block_of(program))})
    for name, contents in {**source_files(program, "model", weights_file=False), "wasm.c": glue}.items():
        (folder / name).write_text(str(contents), encoding="utf-8")
    exported = [f"-Wl,--export={name}" for name in FUNCTIONS]
    command = [sys.executable, "-m", "ziglang", "cc", *OPTIONS, "-Wl,--no-entry", *exported]
    done = subprocess.run(
        [*command, "-o", "model.wasm", "model.c", "wasm.c"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"Zig could not compile the model to WebAssembly: {done.stderr.strip()}")
    return (folder / "model.wasm").read_bytes()


def block_of(program: Program) -> int:
    """The steps of a block."""
    return max(1, MOST_NUMBERS // max(program.sizes[INPUT], program.sizes[OUTPUT]))


def wasm_module(program: Program, code: bytes, vocabulary: Sequence[str] | None, names: str) -> str:
    """The text of the module that has the code in it; `names` as for `module_of`."""
    parts = {
        "ABOUT": program.counts,
        "TOKENS": str(program.tokens),
        "INPUT_SIZE": str(program.sizes[INPUT]),
        "OUTPUT_SIZE": str(program.sizes[OUTPUT]),
        "FINGERPRINT": program.fingerprint,
        "VOCABULARY": json.dumps(vocabulary, ensure_ascii=False),
        "STREAM": names,
        "PARTS": json.dumps([[name, len(start)] for name, start in program.state.items()]),
        "BLOCK": str(block_of(program)),
        "CODE": base64.b64encode(code).decode(),
    }
    return filled("wasm.js", parts)
