"""Exported models, step by step on one thread: C and WebAssembly against the cell in Python and onnxruntime.

A call is so many steps that what calls them does not count. C is compiled by `cc -O3 -march=native`.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.contestants import Contestant
from benchmarks.rows import Book, Row
from benchmarks.settings import Settings, Shape
from benchmarks.speed import Comparison, Race
from linnet.bench.timing import Call
from linnet.deploy.c import export_c
from linnet.deploy.onnx import export_onnx
from linnet.deploy.wasm import export_wasm
from linnet.recurrent.recurrent import Recurrent
from linnet.units import UNITS

EXPORTED = ("sru", "lstm")
STEPS = {64: 1000, 512: 100}  # in a call, by the number of channels
LOOP = """#include "model.h"
static model_state state;
static model_scratch scratch;
static float output[MODEL_OUTPUT_SIZE];
void run(const float *input, int steps);
void run(const float *input, int steps)
{
    for (model_init(&state); steps > 0; steps--) model_step(&state, &scratch, input, output);
}
"""
# Runs for a second, until Node has compiled all with optimisation; then as many steps as each line says, and
# answers with a line.
SERVER = """
import { createInterface } from "readline";
import { Model, inputSize, outputSize } from "./model.js";
const model = new Model();
const output = new Float32Array(outputSize);
const input = Float32Array.from({ length: inputSize }, (_, i) => Math.sin(i));
const run = (steps) => {
  const state = model.start();
  for (let step = 0; step < steps; step++) model.step(state, input, output);
};
for (const end = performance.now() + 1000; performance.now() < end; ) run(100);
for await (const line of createInterface({ input: process.stdin })) {
  run(Number(line));
  console.log("done");
}
"""


def measure(settings: Settings, book: Book) -> list[Row]:
    alone = replace(settings, threads=1)
    units = [unit for unit in EXPORTED if unit in settings.units]
    return [row for unit in units for size in STEPS for row in race_of(unit, size).run(alone, book)]


def race_of(unit: str, size: int) -> Race:
    torch.manual_seed(0)
    rnn = UNITS[unit](size, size).eval()
    builders: dict[str, Callable[[Recurrent], Call]] = {
        "c": c_call,
        "c int8": partial(c_call, int8=True),
        "wasm": wasm_call,
        "cell": cell_call,
        "onnxruntime": onnx_call,
    }
    entrants = {name: Contestant(unit, name, partial(build, rnn)) for name, build in builders.items()}
    comparisons = [Comparison("c", "cell", "its cell"), Comparison("c", "onnxruntime", "onnxruntime")]
    comparisons += [Comparison("c int8", "c", "float32 in C"), Comparison("wasm", "c", "native C")]
    return Race("exported", Shape(STEPS[size], 1, size), "step by step", entrants, comparisons)


def c_call(rnn: Recurrent, int8: bool = False) -> Call:
    folder = tempfile.TemporaryDirectory()
    made = export_c(rnn, Path(folder.name) / "c", int8=int8)
    (made / "loop.c").write_text(LOOP, encoding="utf-8")
    options = ("-std=c99", "-O3", "-march=native", "-shared", "-fPIC", "-o", "steps.so")
    subprocess.run(["cc", *options, "model.c", "loop.c"], cwd=made, check=True)
    library, x = ctypes.CDLL(str(made / "steps.so")), np.sin(np.arange(rnn.input_size, dtype=np.float32))

    def call(kept: Any = folder) -> None:
        library.run(x.ctypes.data_as(ctypes.c_void_p), STEPS[rnn.hidden_size])

    return call


def wasm_call(rnn: Recurrent) -> Call:
    node = shutil.which("node")
    if node is None:
        raise FileNotFoundError("Node is not installed")
    folder = tempfile.TemporaryDirectory()
    made = export_wasm(rnn, Path(folder.name) / "wasm")
    (made / "server.mjs").write_text(SERVER, encoding="utf-8")
    process = subprocess.Popen(
        [node, str(made / "server.mjs")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    ask, answer = process.stdin, process.stdout

    def call(kept: Any = folder) -> None:
        # The process ends when its input is closed, with this function.
        ask.write(f"{STEPS[rnn.hidden_size]}\n")
        ask.flush()
        if not answer.readline():
            raise RuntimeError("Node has ended")

    return call


def cell_call(rnn: Recurrent) -> Call:
    cell, x = rnn.first_cell, torch.sin(torch.arange(rnn.input_size, dtype=torch.float32))[None]

    @torch.no_grad()
    def call() -> None:
        state = None
        for _ in range(STEPS[rnn.hidden_size]):
            _, state = cell.run_step(x, state)

    return call


def onnx_call(rnn: Recurrent) -> Call:
    import onnxruntime

    cell, x = rnn.first_cell, np.sin(np.arange(rnn.input_size, dtype=np.float32))[None]
    start = cell.initial_state((2,), torch.zeros(2, rnn.input_size))
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "cell.onnx"
        export_onnx(cell, path, torch.zeros(2, rnn.input_size), cell.pack_state(start))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(path, options)
    names = [each.name for each in session.get_inputs()]

    def call() -> None:
        state = [tensor[:1].numpy() for tensor in start.values()]
        for _ in range(STEPS[rnn.hidden_size]):
            # The cells of LSTM, GRU and RNN return the state alone, the others an output before it.
            state = session.run(None, dict(zip(names, [x, *state], strict=True)))[-len(state) :]

    return call
