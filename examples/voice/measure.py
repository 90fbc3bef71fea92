"""Compare the exported voice detector with the package silero-vad: its probabilities, and their time.

    pip install silero-vad onnxruntime
    python -m examples.voice.measure                   # a minute of speech by espeak-ng
    python -m examples.voice.measure --voice en-us+f3  # another of its voices
    python -m examples.voice.measure --sound my.wav    # 16 kHz, one channel, 16 bits

The time is the shortest of five runs over the whole sound on one thread, interleaved, after a warm-up, as
a part of the sound's own length: the real-time factor. It needs cc, Node and ziglang.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import subprocess
import tempfile
import time
import wave
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from examples.voice.detector import FRAME, RATE, trained
from examples.voice.export import export

SECONDS, RUNS = 60, 5
TEXT = """In the beginning, the detector hears nothing at all. Then somebody speaks for a while, and stops.
The quick brown fox jumps over the lazy dog, and the lazy dog does not mind. One, two, three, four, five, six.
A recurrent network remembers what it has heard, in a state of one hundred and twenty-eight numbers.

That is enough to tell speech from noise. She sells sea shells by the sea shore. Now there is a pause.

And now there is none. The weather today is sunny, with a chance of rain in the evening. Trains to the north
leave every twenty minutes. How much wood would a woodchuck chuck, if a woodchuck could chuck wood?

Peter Piper picked a peck of pickled peppers. This sentence is the last one, and it ends here."""
NODE = """
import { readFileSync, writeFileSync } from "fs";
import { Model } from "./wasm/model.js";
const bytes = readFileSync("samples");
const samples = new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
const model = new Model();
model.run(model.start(), samples);
const begin = performance.now();
const outputs = model.run(model.start(), samples);
const taken = performance.now() - begin;
writeFileSync("outputs", outputs);
console.log(taken / 1000);
"""
# The probabilities of the frames, and the seconds that they took.
Result = tuple[np.ndarray, float]


def speech(folder: Path, voice: str) -> np.ndarray:
    """A minute of speech with pauses, some noise, and silence at its end, from -1 to 1."""
    path = folder / "speech.wav"
    subprocess.run(["espeak-ng", "-v", voice, "-s", "130", "-g", "8", "-w", str(path), TEXT], check=True)
    spoken, rate = read(path)
    times = np.arange(int(len(spoken) / rate * RATE)) * rate / RATE
    made = np.zeros(SECONDS * RATE, np.float32)
    part = np.interp(times, np.arange(len(spoken)), spoken)[: len(made) - RATE]
    made[RATE : RATE + len(part)] = part
    made[: -5 * RATE] += np.random.default_rng(0).normal(0, 0.001, len(made) - 5 * RATE)
    return made


def read(path: Path) -> tuple[np.ndarray, int]:
    with wave.open(str(path)) as file:
        numbers = np.frombuffer(file.readframes(file.getnframes()), np.int16)
        return numbers.astype(np.float32) / 32768, file.getframerate()


def of_package(frames: Tensor, onnx: bool) -> Result:
    from silero_vad import load_silero_vad

    model: Any = load_silero_vad(onnx=onnx)
    with torch.no_grad():
        for frame in frames[:100]:
            model(frame[None], RATE)
        model.reset_states()
        begin = time.perf_counter()
        found = [model(frame[None], RATE) for frame in frames]
        return torch.cat(found)[:, 0].numpy(), time.perf_counter() - begin


@torch.no_grad()
def in_float64(frames: Tensor) -> np.ndarray:
    """The same network in double precision: how large the rounding of each way is."""
    detector = trained().double()
    state, found = {name: part.double() for name, part in detector.start().items()}, []
    for frame in frames.double():
        y, state = detector(frame[None], state)
        found.append(y)
    return torch.cat(found)[:, 0].numpy()


def in_c(frames: Tensor, library: ctypes.CDLL) -> Result:
    # The sizes of the structs, in bytes, are below these.
    state, scratch = ctypes.create_string_buffer(1 << 20), ctypes.create_string_buffer(1 << 20)
    inputs, outputs = frames.numpy(), np.zeros(len(frames), np.float32)
    given, made = (array.ctypes.data_as(ctypes.c_void_p) for array in (inputs, outputs))
    library.voice_init(state)
    library.voice_run(state, scratch, given, made, ctypes.c_size_t(min(100, len(frames))))
    library.voice_init(state)
    begin = time.perf_counter()
    library.voice_run(state, scratch, given, made, ctypes.c_size_t(len(frames)))
    return outputs, time.perf_counter() - begin


def compiled(folder: Path, *options: str) -> ctypes.CDLL:
    path = folder / f"voice{''.join(options)}.so"
    command = ["cc", "-std=c99", *options, "-shared", "-fPIC", "-o", str(path), str(folder / "c" / "voice.c")]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(path))


def in_node(frames: Tensor, folder: Path) -> Result:
    (folder / "samples").write_bytes(frames.numpy().tobytes())
    (folder / "run.mjs").write_text(NODE, encoding="utf-8")
    done = subprocess.run(["node", "run.mjs"], cwd=folder, capture_output=True, text=True, check=True)
    return np.fromfile(folder / "outputs", np.float32), float(done.stdout)


def ways(frames: Tensor, folder: Path) -> dict[str, Callable[[], Result]]:
    found: dict[str, Callable[[], Result]] = {
        "package, TorchScript": partial(of_package, frames, False),
        "package, ONNX Runtime": partial(of_package, frames, True),
    }
    for kind in ("float32", "int8"):
        own = folder / kind
        export(trained(), own, int8=kind == "int8")
        for options in (("-O3",), ("-O3", "-march=native")):
            found[f"C, {kind}, cc {' '.join(options)}"] = partial(in_c, frames, compiled(own, *options))
        found[f"WebAssembly in Node, {kind}"] = partial(in_node, frames, own)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sound", type=Path, metavar="WAV")
    parser.add_argument("--voice", default="en", help="of espeak-ng; default: en")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as work:
        samples = speech(Path(work), options.voice) if options.sound is None else read(options.sound)[0]
        frames = torch.from_numpy(samples[: len(samples) // FRAME * FRAME]).view(-1, FRAME)
        report(frames, ways(frames, Path(work)))


def report(frames: Tensor, found: dict[str, Callable[[], Result]]) -> None:
    seconds = frames.numel() / RATE
    best = dict.fromkeys(found, math.inf)
    outputs: dict[str, np.ndarray] = {}
    for _ in range(RUNS):
        for name, run in found.items():
            outputs[name], taken = run()
            best[name] = min(best[name], taken)
    expected, exact = outputs["package, TorchScript"], in_float64(frames)
    print(
        f"{seconds:.1f} s of sound, speech in {100 * (expected > 0.5).mean():.0f} % of {len(frames)} frames"
    )
    print("| way | from TorchScript | from float64 | other decisions | real-time factor | µs per frame |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, made in outputs.items():
        apart, wrong = (np.abs(made - other).max() for other in (expected, exact))
        decisions = ((made > 0.5) != (expected > 0.5)).sum()
        factor, frame = best[name] / seconds, 1e6 * best[name] / len(frames)
        print(f"| {name} | {apart:.1e} | {wrong:.1e} | {decisions} | {factor:.5f} | {frame:.0f} |")


if __name__ == "__main__":
    main()
