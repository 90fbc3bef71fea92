"""Instructions of a step, flash and memory of exported models on Cortex-M4 and Cortex-M7.

    python -m tools.microcontroller                  all models on all processors
    python -m tools.microcontroller --record         also write the rows to benchmarks/microcontroller.csv

Models are compiled by arm-none-eabi-gcc -O3 and run by QEMU, whose clock advances with each instruction
(`-icount`): a count of instructions is exact and always the same, but it is no time, as QEMU knows neither
the pipelines nor the waiting for flash of a real processor. Outputs are compared with those in Python. On
Debian: apt install gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

import linnet
from benchmarks.records import COMMIT, INTEGER, NUMBER, TIME, WORDS, RecordFile, Row
from benchmarks.rows import circumstances
from linnet.base.files import write_atomically
from linnet.deploy.step.build import outputs_of
from tools.run_steps import checked

RESULTS = Path(__file__).parents[1] / "benchmarks" / "microcontroller.csv"
CORTEX = Path(__file__).parent / "cortex"
COMPILER, SIZE, EMULATOR = "arm-none-eabi-gcc", "arm-none-eabi-size", "qemu-system-arm"
STEPS = 10
# An instruction takes 2^SHIFT ns of QEMU's clock, and the timer of the boards has ticks of 40 ns.
SHIFT, TICK = 4, 40


class Processor(NamedTuple):
    machine: str
    options: tuple[str, ...]
    unit: tuple[str, ...]  # options for its unit for floating point


PROCESSORS = {
    "Cortex-M4": Processor("mps2-an386", ("-mcpu=cortex-m4",), ("-mfpu=fpv4-sp-d16",)),
    "Cortex-M7": Processor("mps2-an500", ("-mcpu=cortex-m7",), ("-mfpu=fpv5-d16",)),
}
# By name: how a model is exported, and whether its floats are computed by instructions or by functions.
ARITHMETIC = {
    "float32": ("float32", "hard"),
    "float32, no FPU": ("float32", "soft"),
    "int8": ("int8", "hard"),
    "int8, no FPU": ("int8", "soft"),
    "integer": ("integer", "soft"),
}


@dataclass(frozen=True)
class Result:
    """A row of benchmarks/microcontroller.csv."""

    model: str
    arithmetic: str
    processor: str
    instructions: int  # of a step
    flash: int  # bytes of code and constants
    memory: int  # bytes of the state and of scratch
    difference: float  # the root mean square of the differences from float32, relative to that of the outputs
    compiler: str
    emulator: str
    date: str
    commit: str


RECORD = RecordFile(
    {
        **{"model": WORDS, "arithmetic": WORDS, "processor": WORDS, "instructions": INTEGER},
        **{"flash": INTEGER, "memory": INTEGER, "difference": NUMBER, "compiler": WORDS, "emulator": WORDS},
        **{"date": TIME, "commit": COMMIT},
    },
    key=("model", "arithmetic", "processor"),
)


def missing() -> str | None:
    """Which of the programs is not installed; None: all are."""
    absent = [each for each in (COMPILER, SIZE, EMULATOR) if shutil.which(each) is None]
    return f"{absent[0]} is not installed" if absent else None


def models() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    stacks = {f"{unit} 64": getattr(linnet, unit)(64, 64) for unit in ("LSTM", "GRU", "SRU")}
    head = nn.Sequential(linnet.LSTM(128, 128), nn.ReLU(), nn.Linear(128, 1), nn.Sigmoid())
    return {name: model.eval() for name, model in {**stacks, "LSTM 128 and head": head}.items()}


def examples(model: nn.Module, steps: int, batch: int) -> Tensor:
    size = next(each.input_size for each in model.modules() if isinstance(each, linnet.Recurrent))
    return torch.randn(steps, batch, size, generator=torch.Generator().manual_seed(1))


# --------------------------------------------------------------------------------------------- running


@dataclass(frozen=True)
class Exported:
    """A model in a folder, with inputs and what Python computes from them, as arrays that C reads and writes.

    unit   what 1 stands for in the outputs
    """

    folder: Path
    inputs: np.ndarray
    outputs: np.ndarray
    unit: float

    @property
    def number(self) -> str:
        return "int16_t" if self.inputs.dtype == np.int16 else "float"


def exported(model: nn.Module, kind: str, folder: Path) -> Exported:
    x = examples(model, STEPS, 1)
    if kind == "integer":
        small = linnet.quantize_integer(model, examples(model, 50, 8))
        numbers = small.input_numbers(x)
        outputs = small.run(numbers)[0][:, 0].numpy().astype(np.int16)
        form = small.integers.formats["output"].at(0)
        made = linnet.export_c(small, folder)
        return Exported(made, numbers[:, 0].numpy().astype(np.int16), outputs, 2.0**-form.fraction)
    model = linnet.quantize(model) if kind == "int8" else model
    return Exported(linnet.export_c(model, folder), x[:, 0].numpy(), outputs_of(model, x[:, 0]).numpy(), 1.0)


def compile_model(model: Exported, processor: Processor, floats: str) -> int:
    """Write `program`, and return the bytes of the model's code and constants."""
    unit = (*processor.unit, "-mfloat-abi=hard") if floats == "hard" else ("-mfloat-abi=soft",)
    options = (COMPILER, "-std=c99", "-O3", "-mthumb", *processor.options, *unit)
    checked([*options, "-w", "-c", "model.c", "-o", "model.o"], folder=model.folder)
    defined = (f"-DNUMBER={model.number}", f"-DSTEPS={STEPS}", f"-I{CORTEX}")
    sources = ("count.c", "start.c")
    linked = ("-nostartfiles", f"-Wl,-T,{CORTEX / 'mps2.ld'}", "-Wl,--no-warn-rwx-segments")
    files = ("-I.", "model.o", *(str(CORTEX / each) for each in sources))
    checked([*options, *defined, *linked, *files, "-o", "program"], folder=model.folder)
    text, data, *_ = checked([SIZE, "model.o"], folder=model.folder).splitlines()[1].split()
    return int(text) + int(data)


def run_model(model: Exported, processor: Processor) -> tuple[int, np.ndarray]:
    """The instructions of a step, the median over the steps, and the outputs."""
    (model.folder / "inputs").write_bytes(model.inputs.tobytes())
    quiet = ("-display", "none", "-serial", "none", "-monitor", "none")
    clock = ("-icount", f"shift={SHIFT}", "-semihosting-config", "enable=on,target=native")
    command = [EMULATOR, "-machine", processor.machine, *quiet, *clock, "-kernel", "program"]
    checked(command, folder=model.folder)
    row = np.dtype([("ticks", "<u4", 2), ("output", model.outputs.dtype, model.outputs.shape[1])])
    found = np.fromfile(model.folder / "outputs", row)
    ticks = found["ticks"].astype(np.int64)
    counts = (ticks[:, 0] - ticks[:, 1]) * TICK / 2**SHIFT
    return round(float(np.median(counts))), found["output"]


def check_outputs(name: str, model: Exported, outputs: np.ndarray) -> None:
    """Whole numbers are equal; in int8, a last digit may round a number to another of 127 levels."""
    limit = 0 if model.number == "int16_t" else 0.05 if "int8" in name else 1e-5
    apart = float(np.abs(outputs.astype(np.float64) - model.outputs).max())
    if not apart <= limit:
        raise RuntimeError(
            f"{name}: outputs differ from Python by {apart:.3g}; at most {limit:g} is expected"
        )


def measure(name: str, model: nn.Module, arithmetic: str, processor: str) -> Result:
    kind, floats = ARITHMETIC[arithmetic]
    with tempfile.TemporaryDirectory() as work:
        made = exported(model, kind, Path(work) / "model")
        flash = compile_model(made, PROCESSORS[processor], floats)
        instructions, outputs = run_model(made, PROCESSORS[processor])
        header = (made.folder / "model.h").read_text(encoding="utf-8")
    check_outputs(f"{name}, {arithmetic}, {processor}", made, outputs)
    expected = outputs_of(model, examples(model, STEPS, 1)[:, 0]).numpy()
    apart = outputs * made.unit - expected
    return Result(
        model=name,
        arithmetic=arithmetic,
        processor=processor,
        instructions=instructions,
        flash=flash,
        memory=sum(bytes_of(header, each) for each in ("STATE", "SCRATCH")),
        difference=float(np.sqrt(np.square(apart).mean() / np.square(expected).mean())),
        compiler=checked([COMPILER, "-dumpfullversion"]).strip(),
        emulator=checked([EMULATOR, "--version"]).split()[3],
        date=circumstances(1)["date"],
        commit=circumstances(1)["commit"],
    )


def bytes_of(header: str, struct: str) -> int:
    return int(header.split(f"#define MODEL_{struct}_BYTES ")[1].split()[0])


def results() -> Iterator[Result]:
    for name, model in models().items():
        for processor in PROCESSORS:
            for arithmetic in ARITHMETIC:
                yield measure(name, model, arithmetic, processor)


# ---------------------------------------------------------------------------------------- recorded


def read_results(path: Path = RESULTS) -> list[Row]:
    return RECORD.read(path) if path.exists() else []


def record(found: Sequence[Result], path: Path = RESULTS) -> None:
    rows = [
        {**{name: str(value) for name, value in asdict(each).items()}, "difference": f"{each.difference:.2g}"}
        for each in found
    ]
    write_atomically(path, RECORD.content(rows))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--record", action="store_true", help=f"write the rows to {RESULTS}")
    options = parser.parse_args()
    absent = missing()
    if absent is not None:
        print(absent)
        return 1
    found = []
    for each in results():
        found.append(each)
        sizes = f"{each.flash:>7,} bytes of flash, {each.memory:>5,} of memory"
        what = f"{each.instructions:>10,} instructions, {sizes}"
        print(f"{each.model:<18} {each.processor} {each.arithmetic:<16} {what}", flush=True)
    if options.record:
        record(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
