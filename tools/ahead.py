"""Compile every kernel for GPUs that need not be present: registers, spills and shared memory.

    python -m tools.ahead 80 90

prints a row for each kernel of each unit, for these compute capabilities (80: A100, 90: H100), in the
default configuration. It needs triton, which includes NVIDIA's assembler, and no GPU.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence

import torch

from benchmarks.records import INTEGER, WORDS, RecordFile
from benchmarks.recurrence import training_plans
from linnet.program.plan import Plan
from linnet.program.trace import name_in_unit
from linnet.triton.kernels import compile_ahead
from linnet.triton.loop import Recipe
from linnet.units import UNITS

RECORD = RecordFile(
    {
        **{"capability": INTEGER, "unit": WORDS, "kernel": WORDS, "dtype": WORDS, "registers": INTEGER},
        **{"spilled": INTEGER, "shared": INTEGER, "ahead_of_time": "True|False"},
    },
    key=("capability", "unit", "kernel", "dtype"),
)
COLUMNS = tuple(RECORD.columns)
# All units in float32; one unit of each kind also in bfloat16, as dtypes change only loads and stores.
HALVES = ("sru", "lstm")


def kernels() -> Iterator[tuple[str, Plan, torch.dtype]]:
    for unit in UNITS:
        plans = training_plans(unit)
        # On a GPU there are none for steps that are not elementwise, and none for products within a step.
        if isinstance(plans, str) or any(plan.traced.sizes or plan.traced.inner for plan in plans):
            continue
        for plan in plans:
            yield unit, plan, torch.float32
            if unit in HALVES:
                yield unit, plan, torch.bfloat16


def all_kernels() -> Iterator[tuple[str, Plan, torch.dtype, str, bool]]:
    """Yield unit, plan, dtype, name, and whether the kernel runs both directions."""
    for unit, plan, dtype in kernels():
        for name in ("forward", "backward"):
            for both in (False,) if plan.products else (False, True):
                yield unit, plan, dtype, name, both


def row(
    capability: int, unit: str, plan: Plan, dtype: torch.dtype, name: str, both: bool
) -> dict[str, object]:
    recipe = Recipe.of(plan, plan.all_gradients() if name == "backward" else ())
    compiled = compile_ahead(recipe, name, both, dtype, capability)
    check_offsets(compiled.intermediate, f"{unit} {name}")
    kernel, states = f"{name}_both" if both else name, "+".join(map(name_in_unit, plan.traced.states))
    known = (capability, f"{unit} {states}", kernel, str(dtype).removeprefix("torch."))
    figures = (compiled.registers, compiled.spilled, compiled.shared, "cp.async" in compiled.ptx)
    return dict(zip(COLUMNS, (*known, *figures), strict=True))


def check_offsets(intermediate: str, what: str) -> None:
    """Raise if an offset is computed in 32 bits: it would overflow for long sequences of large batches."""
    narrow = [line.strip() for line in intermediate.splitlines() if "arith.muli" in line and ": i32" in line]
    if narrow:
        raise ValueError(f"{what} computes an offset in 32 bits: {narrow[0]}")


def main(arguments: Sequence[str]) -> None:
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for capability in map(int, arguments):
        for kernel in all_kernels():
            writer.writerow(row(capability, *kernel))
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
