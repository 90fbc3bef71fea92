"""Every unit, two and three layers, 500 steps, by every compiler and on every machine that is at hand.

    python -m tools.targets                  a table: the largest difference from Python on each target
    python -m tools.targets gcc wasm-node    some of the targets

A target whose tools are not installed is listed with the reason. The exit code is 1 if a difference is above
1e-5, or if a compiler warns.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import linnet
from tools.run_steps import NODE, STRICT, checked, run_modules, run_page
from tools.step_cases import Case, models, units, variants

STEPS, FEWER = 500, 30
LIMIT = 1e-5
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
class Machine:
    """A compiler, and what runs its programs; `()`: this machine."""

    compiler: tuple[str, ...]
    runner: tuple[str, ...] = ()

    def missing(self) -> str | None:
        found = [self.compiler[0], *self.runner[:1]]
        absent = [each for each in found if shutil.which(each) is None]
        if absent:
            return f"{absent[0]} is not installed"
        zig = "ziglang" in self.compiler and find_spec("ziglang") is None
        return "ziglang is not installed" if zig else None


MACHINES = {
    "gcc": Machine(("gcc", "-O2")),
    "gcc-native": Machine(("gcc", "-O3", "-march=native")),
    "gcc-ubsan": Machine(("gcc", "-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all")),
    "valgrind": Machine(("gcc", "-O1", "-g"), ("valgrind", "-q", "--error-exitcode=9")),
    "clang": Machine(("clang", "-O2")),
    "clang-native": Machine(("clang", "-O3", "-march=native")),
    "zig": Machine((*ZIG, "-O3")),
    "aarch64": Machine((*ZIG, "-O3", "-target", "aarch64-linux-musl", "-static"), ("qemu-aarch64",)),
    "riscv64": Machine((*ZIG, "-O3", "-target", "riscv64-linux-musl", "-static"), ("qemu-riscv64",)),
}


def run_machine(machine: Machine, cases: Sequence[Case], folder: Path) -> list[Tensor]:
    """The outputs of all cases, by one program."""
    names = [f"model{n}" for n in range(len(cases))]
    for name, case in zip(names, cases, strict=True):
        linnet.export_c(case.model, folder / name, name=name)
    (folder / "driver.c").write_text(driver(names, cases), encoding="utf-8")
    sources = [str(folder / name / f"{name}.c") for name in names]
    paths = [f"-I{folder / name}" for name in names]
    program = str(folder / "program")
    checked([*machine.compiler, *STRICT, *paths, *sources, str(folder / "driver.c"), "-o", program])
    given = b"".join(case.inputs.numpy().astype(kind_of(case)).tobytes() for case in cases)
    (folder / "inputs").write_bytes(given)
    checked([*machine.runner, program, str(folder / "inputs"), str(folder / "outputs")])
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
        export(case.model, folder / case.name)
    results = run_modules(folder, cases)
    return [torch.tensor(results[case.name]["outputs"]) for case in cases]


def run_in_chromium(export: Callable[..., Path], cases: Sequence[Case], folder: Path) -> list[Tensor]:
    outputs = []
    for case in cases:
        written = export(case.model, folder / case.name)
        outputs.append(torch.tensor(run_page(CHROMIUM, written / "model.js", folder, case.inputs)))
    return outputs


PAGES: dict[str, tuple[Callable[..., Path], Callable[..., list[Tensor]]]] = {
    "js-node": (linnet.export_js, run_in_node),
    "wasm-node": (linnet.export_wasm, run_in_node),
    "js-chromium": (linnet.export_js, run_in_chromium),
    "wasm-chromium": (linnet.export_wasm, run_in_chromium),
}


def missing(target: str) -> str | None:
    if target in MACHINES:
        return MACHINES[target].missing()
    if target == "cortex-m7":
        return None if find_spec("ziglang") else "ziglang is not installed"
    if target.startswith("wasm") and find_spec("ziglang") is None:
        return "ziglang is not installed"
    if target.endswith("node"):
        return None if NODE else "Node is not installed"
    return None if shutil.which(CHROMIUM[0]) else "Chromium is not installed"


def run_target(target: str, cases: Sequence[Case], folder: Path) -> list[Tensor]:
    if target in MACHINES:
        return run_machine(MACHINES[target], cases, folder)
    export, run = PAGES[target]
    return run(export, cases, folder)


def compile_for_cortex(cases: Sequence[Case], folder: Path) -> int:
    """Compile every case for a Cortex-M7 without an operating system; return the bytes of the largest."""
    target = ("-target", "thumb-freestanding-eabihf", "-mcpu=cortex_m7", "-O2", "-c")
    largest = 0
    for case in cases:
        written = linnet.export_c(case.model, folder / case.name)
        made = folder / "model.o"
        checked([*ZIG, *target, *STRICT, str(written / "model.c"), "-o", str(made)])
        largest = max(largest, made.stat().st_size)
    return largest


def difference(case: Case, outputs: Tensor) -> float:
    """The largest difference, relative to numbers above 1; infinite if one is not a number."""
    apart = (outputs - case.outputs).abs() / (1 + case.outputs.abs())
    return float(torch.nan_to_num(apart, nan=torch.inf).max())


def report(target: str, cases: Sequence[Case]) -> bool:
    """Print the row of a target; return whether it is as it should be."""
    absent = missing(target)
    if absent is not None:
        print(f"{target:<14} not run: {absent}")
        return True
    with tempfile.TemporaryDirectory() as work:
        try:
            if target == "cortex-m7":
                size = compile_for_cortex(cases, Path(work))
                print(f"{target:<14} {len(cases)} models compiled, the largest object has {size:,} bytes")
                return True
            outputs = run_target(target, cases, Path(work))
        except (RuntimeError, subprocess.CalledProcessError) as error:
            print(f"{target:<14} failed: {str(error)[-500:]}")
            return False
    found = {case.name: difference(case, each) for case, each in zip(cases, outputs, strict=True)}
    worst = max(found, key=found.__getitem__)
    print(f"{target:<14} {len(cases)} models, largest difference {found[worst]:.1e} ({worst})", flush=True)
    return found[worst] <= LIMIT


def main() -> int:
    every = [*MACHINES, *PAGES, "cortex-m7"]
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("targets", nargs="*", choices=[*every, []], help=", ".join(every))
    targets = parser.parse_args().targets or every
    cases = [*units(STEPS), *variants(FEWER), *models(FEWER)]
    results = [report(target, cases) for target in targets]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
