"""Every unit, two and three layers, 500 steps, by every compiler and on every machine that is available.

    python -m tools.targets                  the largest difference from Python on each target
    python -m tools.targets gcc wasm-node    some of the targets
    python -m tools.targets --record         also write the results to benchmarks/targets.csv

A target whose tools are not installed is listed with the reason. The exit code is 1 if a difference is above
1e-5, or if a compiler warns. `python -m tools.pages` writes the table of docs/deploy.md from the recorded
results.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

import linnet
from benchmarks.records import COMMIT, INTEGER, NUMBER, TIME, WORDS, RecordFile, Row
from benchmarks.rows import circumstances
from linnet.base.checkout import loaded_commit
from linnet.base.files import write_atomically
from tools.frame_cases import frames
from tools.run_steps import NODE, STRICT, checked, run_modules, run_page
from tools.step_cases import Case, models, units, variants

RESULTS = Path(__file__).parents[1] / "benchmarks" / "targets.csv"
STEPS, FEWER = 500, 30
LIMIT = 1e-5
CORTEX = Path(__file__).parent / "cortex"
ZIG = (sys.executable, "-m", "ziglang", "cc")
CHROMIUM = ("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run")

DRIVER = """
#include <stdio.h>
@HEADERS@
int main(int count, char **paths)
{
    FILE *in = count > 2 ? fopen(paths[1], "rb") : NULL, *out = count > 2 ? fopen(paths[2], "wb") : NULL;
    if (!in || !out) return 2;
@RUNS@
    return fclose(in) || fclose(out);
}
"""
RUN = """    {
        static @NAME@_state state;
        static @NAME@_scratch scratch;
        static @TYPE@ input[@SIZE@];
        static float output[@PREFIX@_OUTPUT_SIZE];
        int step;
        @NAME@_init(&state);
        for (step = 0; step < @STEPS@; step++) {
            if (fread(input, sizeof input, 1, in) != 1) return 3;
            @NAME@_step(&state, &scratch, @INPUT@, output);
            if (fwrite(output, sizeof output, 1, out) != 1) return 4;
        }
    }
"""


@dataclass(frozen=True)
class Result:
    """A row of benchmarks/targets.csv: the largest difference from Python over all steps of all models."""

    target: str
    models: int
    difference: float
    worst: str  # the model that differs most
    date: str
    commit: str


class Machine(NamedTuple):
    """A compiler, and what runs its programs; `()`: this machine."""

    about: str
    compiler: tuple[str, ...]
    runner: tuple[str, ...] = ()
    # Whether a program takes the paths of its inputs and outputs as arguments.
    takes_paths: bool = True

    def missing(self) -> str | None:
        found = [self.compiler[0], *self.runner[:1]]
        absent = [each for each in found if shutil.which(each) is None]
        if absent:
            return f"{absent[0]} is not installed"
        zig = "ziglang" in self.compiler and find_spec("ziglang") is None
        return "ziglang is not installed" if zig else None


BARE = ("-target", "thumb-freestanding-eabihf", "-mcpu=cortex_m7", "-O2", f"-I{CORTEX}")
EMULATED = ("qemu-system-arm", "-machine", "mps2-an500", "-display", "none", "-serial", "none")
MACHINES = {
    "gcc": Machine("C by gcc", ("gcc", "-O2")),
    "gcc-native": Machine("C by gcc for this processor", ("gcc", "-O3", "-march=native")),
    "gcc-ubsan": Machine(
        "C by gcc with UndefinedBehaviorSanitizer",
        ("gcc", "-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all"),
    ),
    "valgrind": Machine(
        "C by gcc under valgrind", ("gcc", "-O1", "-g"), ("valgrind", "-q", "--error-exitcode=9")
    ),
    "clang": Machine("C by clang", ("clang", "-O2")),
    "clang-native": Machine("C by clang for this processor", ("clang", "-O3", "-march=native")),
    "zig": Machine("C by zig cc", (*ZIG, "-O3")),
    "aarch64": Machine(
        "C on AArch64 (qemu-user)",
        (*ZIG, "-O3", "-target", "aarch64-linux-musl", "-static"),
        ("qemu-aarch64",),
    ),
    "riscv64": Machine(
        "C on RISC-V (qemu-user)",
        (*ZIG, "-O3", "-target", "riscv64-linux-musl", "-static"),
        ("qemu-riscv64",),
    ),
    "cortex-m7": Machine(
        "C on Cortex-M7 without an operating system (QEMU, board MPS2 AN500)",
        (*ZIG, *BARE, f"-Wl,-T,{CORTEX / 'mps2-an500.ld'}", str(CORTEX / "start.c")),
        (*EMULATED, "-semihosting-config", "enable=on,target=native", "-kernel"),
        takes_paths=False,
    ),
}


def run_machine(machine: Machine, cases: Sequence[Case], folder: Path) -> list[Tensor]:
    """The outputs of all cases, by one program."""
    names = [f"model{n}" for n in range(len(cases))]
    for name, case in zip(names, cases, strict=True):
        linnet.export_c(case.model, folder / name, name=name, example=case.example)
    (folder / "driver.c").write_text(driver(names, cases), encoding="utf-8")
    sources = [str(folder / name / f"{name}.c") for name in names]
    paths = [f"-I{folder / name}" for name in names]
    program = str(folder / "program")
    checked([*machine.compiler, *STRICT, *paths, *sources, str(folder / "driver.c"), "-o", program])
    given = b"".join(case.inputs.numpy().astype(kind_of(case)).tobytes() for case in cases)
    (folder / "inputs").write_bytes(given)
    checked(
        [*machine.runner, program, *(("inputs", "outputs") if machine.takes_paths else ())], folder=folder
    )
    values = torch.from_numpy(np.fromfile(folder / "outputs", np.float32))
    parts = values.split([case.outputs.numel() for case in cases])
    return [part.view_as(case.outputs) for part, case in zip(parts, cases, strict=True)]


def kind_of(case: Case) -> str:
    return "<i4" if case.inputs.dim() == 1 else "<f4"


def driver(names: Sequence[str], cases: Sequence[Case]) -> str:
    headers = "\n".join(f'#include "{name}.h"' for name in names)
    runs = []
    for name, case in zip(names, cases, strict=True):
        is_token = case.inputs.dim() == 1
        parts = {
            "NAME": name,
            "PREFIX": name.upper(),
            "TYPE": "int32_t" if is_token else "float",
            "SIZE": "1" if is_token else str(case.inputs.shape[1]),
            "STEPS": str(len(case.inputs)),
            "INPUT": "input[0]" if is_token else "input",
        }
        text = RUN
        for word, part in parts.items():
            text = text.replace(f"@{word}@", part)
        runs.append(text)
    return DRIVER.replace("@HEADERS@", headers).replace("@RUNS@", "".join(runs))


def run_in_node(export: Callable[..., Path], cases: Sequence[Case], folder: Path) -> list[Tensor]:
    for case in cases:
        export(case.model, folder / case.name, example=case.example)
    results = run_modules(folder, cases)
    return [torch.tensor(results[case.name]["outputs"]) for case in cases]


def run_in_chromium(export: Callable[..., Path], cases: Sequence[Case], folder: Path) -> list[Tensor]:
    outputs = []
    for case in cases:
        written = export(case.model, folder / case.name, example=case.example)
        outputs.append(torch.tensor(run_page(CHROMIUM, written / "model.js", folder, case.inputs)))
    return outputs


class Page(NamedTuple):
    """An export for a page, and what runs it."""

    about: str
    export: Callable[..., Path]
    run: Callable[..., list[Tensor]]

    @property
    def needs_zig(self) -> bool:
        return self.export is linnet.export_wasm

    def missing(self) -> str | None:
        if self.needs_zig and find_spec("ziglang") is None:
            return "ziglang is not installed"
        if self.run is run_in_node:
            return None if NODE else "Node is not installed"
        return None if shutil.which(CHROMIUM[0]) else "Chromium is not installed"


PAGES = {
    "js-node": Page("JavaScript in Node", linnet.export_js, run_in_node),
    "wasm-node": Page("WebAssembly in Node", linnet.export_wasm, run_in_node),
    "js-chromium": Page("JavaScript in Chromium", linnet.export_js, run_in_chromium),
    "wasm-chromium": Page("WebAssembly in Chromium", linnet.export_wasm, run_in_chromium),
}
TARGETS: dict[str, Machine | Page] = {**MACHINES, **PAGES}


def run_target(target: Machine | Page, cases: Sequence[Case], folder: Path) -> list[Tensor]:
    if isinstance(target, Machine):
        return run_machine(target, cases, folder)
    return target.run(target.export, cases, folder)


def difference(case: Case, outputs: Tensor) -> float:
    """The largest difference, relative to numbers above 1; infinite if one is not a number."""
    apart = (outputs - case.outputs).abs() / (1 + case.outputs.abs())
    return float(torch.nan_to_num(apart, nan=torch.inf).max())


def compared(name: str, cases: Sequence[Case]) -> Result:
    """Run a target."""
    with tempfile.TemporaryDirectory() as work:
        outputs = run_target(TARGETS[name], cases, Path(work))
    found = {case.name: difference(case, each) for case, each in zip(cases, outputs, strict=True)}
    worst = max(found, key=found.__getitem__)
    return Result(name, len(cases), found[worst], worst, circumstances(1)["date"], loaded_commit())


def report(name: str, cases: Sequence[Case], records: bool) -> bool:
    """Print the row of a target; return whether it is as it should be."""
    absent = TARGETS[name].missing()
    if absent is not None:
        print(f"{name:<14} not run: {absent}")
        return True
    try:
        result = compared(name, cases)
    except (RuntimeError, subprocess.SubprocessError) as error:
        print(f"{name:<14} failed: {str(error)[-500:]}")
        return False
    what = f"{len(cases)} models, largest difference {result.difference:.1e} ({result.worst})"
    print(f"{name:<14} {what}", flush=True)
    if records:
        record([result])
    return result.difference <= LIMIT


# ---------------------------------------------------------------------------------------- recorded


RECORD = RecordFile(
    {
        **{"target": WORDS, "models": INTEGER, "difference": NUMBER, "worst": WORDS},
        **{"date": TIME, "commit": COMMIT},
    },
    key=("target",),
)


def read_results(path: Path = RESULTS) -> dict[str, Result]:
    """Return the recorded results by target."""
    rows = RECORD.read(path) if path.exists() else []
    return {
        row["target"]: Result(
            row["target"],
            int(row["models"]),
            float(row["difference"]),
            row["worst"],
            row["date"],
            row["commit"],
        )
        for row in rows
    }


def record(results: Sequence[Result], path: Path = RESULTS) -> None:
    """Write these results; those of other targets stay."""
    known = {**read_results(path), **{result.target: result for result in results}}
    rows = [as_row(known[name]) for name in TARGETS if name in known]
    write_atomically(path, RECORD.content(rows))


def as_row(result: Result) -> Row:
    return {
        **{name: str(value) for name, value in asdict(result).items()},
        "difference": f"{result.difference:.2g}",
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, []], help=", ".join(TARGETS))
    parser.add_argument("--record", action="store_true", help=f"write the results to {RESULTS}")
    options = parser.parse_args()
    loaded_commit()
    cases = [*units(STEPS), *variants(FEWER), *models(FEWER), *frames(FEWER)]
    good = [report(name, cases, options.record) for name in options.targets or TARGETS]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
