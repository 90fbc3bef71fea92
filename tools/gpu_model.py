"""A performance model of GPUs, from the bytes and operations of the kernels: no GPU has been timed.

    python -m tools.gpu_model docs/gpu.md

updates the tables of that page. All counts come from the traced graphs and from the operands of the kernels
that are generated from them.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.recurrence import training_plans
from benchmarks.settings import RACED, Shape
from linnet.base.tables import markdown
from linnet.program.plan import Plan
from linnet.program.trace import Pointwise
from linnet.triton.loop import Recipe
from linnet.triton.source import Backward, Forward
from linnet.triton.step import ARITHMETIC
from linnet.units import UNITS

SHAPE = Shape(256, 32, 512)
RECORDED = Path(__file__).parents[1] / "benchmarks" / "gpu_kernels.csv"  # by tools.ahead
KERNELS = ("forward", "backward", "forward_both", "backward_both")


class GPU(NamedTuple):
    """Published figures: memory bandwidth in bytes/s, speed of matrix products in operations/s."""

    name: str
    bandwidth: float
    float32: float
    bfloat16: float


# NVIDIA's data sheets: A100 SXM with 40 GB, H100 SXM. Products of bfloat16 are those of the tensor cores,
# without sparsity; those of float32 are without TF32, which torch leaves off by default.
GPUS = (GPU("A100", 1555e9, 19.5e12, 312e12), GPU("H100", 3350e9, 67e12, 989e12))
# Seconds to launch a kernel: not a published figure but a common estimate, to be measured first.
LAUNCH = 10e-6


class Work(NamedTuple):
    """The bytes read or written and the operations of one pass, per channel and step.

    special   sigmoid, tanh, exp and similar functions, which need several instructions each
    """

    moved: int
    arithmetic: int
    special: int


# Bytes of a number in float32, the dtype of arithmetic, of states and of their gradients.
WIDE = 4


def operations(graph: Pointwise) -> tuple[int, int]:
    arithmetic = sum(line.op in ARITHMETIC for line in graph.lines)
    return arithmetic, len(graph.lines) - arithmetic


def forward_work(plan: Plan, storage: int) -> Work:
    """Reads the inputs; writes the output and the states of all steps, one of which may be the output.

    storage   bytes of a number of the inputs and outputs
    """
    kernel = Forward(Recipe.of(plan))
    inputs, states = inputs_read(kernel.graph, plan), len(plan.traced.states)
    # A kernel for one step reads the states that the previous one wrote.
    again = states if plan.products else 0
    output = 0 if plan.traced.output_state and storage == WIDE else 1
    return Work((inputs + output) * storage + (states + again) * WIDE, *operations(kernel.graph))


def backward_work(plan: Plan, storage: int) -> Work:
    """Reads the inputs, the states and the output's gradient; writes the inputs' gradients."""
    recipe = Recipe.of(plan, plan.all_gradients())
    kernel = Backward(recipe)
    read = inputs_read(kernel.graph, plan) + 1
    states = [name for name in plan.traced.states if name in kernel.graph.inputs]
    again = 2 * len(plan.traced.states) if plan.products else 0
    written = [name for name in recipe.wanted if name in plan.traced.inputs]
    moved = (read + len(written)) * storage + (len(states) + again) * WIDE
    return Work(moved, *operations(kernel.graph))


def inputs_read(graph: Pointwise, plan: Plan) -> int:
    return sum(name in graph.inputs for name in plan.traced.inputs)


def plans_of(unit: str) -> list[Plan]:
    plans = training_plans(unit)
    return [] if isinstance(plans, str) or any(plan.traced.sizes for plan in plans) else plans


def fused_units() -> list[str]:
    return [unit for unit in RACED if plans_of(unit)]


def widths(unit: str, size: int) -> list[tuple[Plan, int]]:
    """Return the plans of a unit's stages, with the number of channels of each."""
    cell = UNITS[unit](size, size).first_cell
    stages = zip(plans_of(unit), cell.stages(), strict=True)
    return [(plan, cell.states[stage.states[0]]) for plan, stage in stages]


def product_flops(unit: str, shape: Shape) -> float:
    """Return the operations of all matrix products of a forward pass: two per weight, step and sequence."""
    matrices = (p for p in UNITS[unit](shape.d, shape.d).parameters() if p.dim() > 1)
    return 2.0 * shape.L * shape.B * sum(p.numel() for p in matrices)


def launches(unit: str, shape: Shape) -> int:
    """Return the launches of one pass: with matrices, a kernel and its products at each step."""
    return sum(shape.L * (1 + len(plan.products)) if plan.products else 1 for plan in plans_of(unit))


class Expected(NamedTuple):
    """Seconds of a training step: elementwise parts at full bandwidth, products at full speed, launches."""

    elementwise: float
    products: float
    launching: float

    @property
    def total(self) -> float:
        """The longer of both: the CPU launches kernels while the GPU computes."""
        return max(self.elementwise + self.products, self.launching)


def expected(unit: str, gpu: GPU, storage: int, shape: Shape = SHAPE) -> Expected:
    stages = widths(unit, shape.d)
    passes = (forward_work, backward_work)
    moved = sum(work(plan, storage).moved * size for plan, size in stages for work in passes)
    speed = gpu.float32 if storage == 4 else gpu.bfloat16
    return Expected(
        moved * shape.L * shape.B / gpu.bandwidth,
        3 * product_flops(unit, shape) / speed,
        2 * launches(unit, shape) * LAUNCH,
    )


# ------------------------------------------------------------------------------- the page


def work_rows() -> Iterator[list[str]]:
    for unit in fused_units():
        flops = product_flops(unit, SHAPE) / (SHAPE.L * SHAPE.B * SHAPE.d)
        for number, plan in enumerate(plans_of(unit)):
            works = [work(plan, storage) for work in (forward_work, backward_work) for storage in (4, 2)]
            name = f"{UNITS[unit].__name__}{f', stage {number + 1}' if len(plans_of(unit)) > 1 else ''}"
            moved = [str(work.moved) for work in works]
            yield [
                name,
                *moved,
                *(f"{w.arithmetic} + {w.special}" for w in works[::2]),
                f"{flops:.0f}",
            ]


def time_rows() -> Iterator[list[str]]:
    for unit in fused_units():
        cells = []
        for gpu in GPUS:
            for storage in (4, 2):
                e = expected(unit, gpu, storage)
                cells.append(f"{1e3 * e.total:.2f} ({1e3 * e.elementwise:.2f} + {1e3 * e.products:.2f})")
        yield [UNITS[unit].__name__, *cells, f"{2 * launches(unit, SHAPE)}"]


def tables() -> dict[str, str]:
    ways = [f"{way} {dtype}" for way in ("forward", "backward") for dtype in ("float32", "bfloat16")]
    work = markdown(
        ["unit", *ways, "operations forward", "operations backward", "products"], list(work_rows())
    )
    kinds = [f"{gpu.name} {dtype}" for gpu in GPUS for dtype in ("float32", "bfloat16")]
    times = markdown(["unit", *kinds, "launches"], list(time_rows()))
    return {"work": work, "times": times, "resources": resources()}


def resources() -> str:
    """Return a table of the recorded registers and shared memory of the float32 kernels."""
    with RECORDED.open(encoding="utf-8", newline="") as file:
        known = [row for row in csv.DictReader(file) if row["dtype"] == "float32"]
    figures = {(r["unit"], r["kernel"], r["capability"]): f"{r['registers']}, {r['shared']}" for r in known}
    kinds = [(kernel, capability) for kernel in KERNELS for capability in ("80", "90")]
    body = [
        [f"`{unit}`", *(figures.get((unit, *kind), "-") for kind in kinds)]
        for unit in dict.fromkeys(row["unit"] for row in known)
    ]
    heads = [f"{kernel}, {capability[0]}.{capability[1]}" for kernel, capability in kinds]
    return markdown(["unit, states", *heads], body)


def with_tables(page: str, by_name: dict[str, str]) -> str:
    """Return the page with each table between its two markers: <!-- work --> and <!-- end of work -->."""
    for name, table in by_name.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        if begin not in page or end not in page:
            raise ValueError(f"the page needs the markers {begin.strip()} and {end} for the table {name!r}")
        before, _, rest = page.partition(begin)
        page = f"{before}{begin}{table}\n{end}{rest.partition(end)[2]}"
    return page


def main(arguments: Sequence[str]) -> None:
    for path in map(Path, arguments):
        path.write_text(with_tables(path.read_text(encoding="utf-8"), tables()), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
