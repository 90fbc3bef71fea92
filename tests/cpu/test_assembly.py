"""The machine code of kernels: wide registers, fused products and sums, no calls."""

from __future__ import annotations

import platform
import re
from typing import Any

import pytest
import torch
from fused_runs import over, plans_of, variant

import linnet
from linnet.cpu import jit, kernels
from linnet.cpu.recipe import Recipe
from linnet.cpu.width import vector_width

X86 = platform.machine() in ("x86_64", "AMD64")
WIDE = X86 and "+avx2" in jit.host_cpu() and "+fma" in jit.host_cpu()
pytestmark = pytest.mark.skipif(not WIDE, reason="reads the assembly of x86 with AVX2 and FMA")

UNITS = [variant(linnet.SRU), variant(linnet.SRU, square=True), variant(linnet.LRN), variant(linnet.LSTM)]
# Each of these is a polynomial of at least so many products and sums.
FUNCTIONS, TERMS = ("sigmoid", "tanh"), 7


def kernel(variant: Any, direction: str, storage: str = "float32") -> tuple[Any, str]:
    """What is computed, and the assembly."""
    (fusible,) = plans_of(variant.build(5))
    traced, products = fusible.plan.traced, fusible.plan.products
    width = vector_width(torch.float64 if storage == "float64" else torch.float32)
    if direction == "backward":
        recipe = Recipe(traced, products, storage, width, (*traced.inputs, *traced.weights))
        return traced.backward, jit.assembly(kernels.backward_ir(recipe))
    made = (*fusible.plan.extras, *(part for product in products for part in product.parts))
    projected = tuple(name for name in traced.inputs if name not in made)
    how = {"projected": projected, "projects": True} if direction == "projecting" else {}
    recipe = Recipe(traced, products, storage, width, **how)
    return traced.forward, jit.assembly(kernels.forward_ir(recipe))


def hottest(text: str) -> str:
    """The stretch between two labels that works on wide registers most: the loop over channels."""
    blocks = re.split(r"^[.\w]+:", text, flags=re.MULTILINE)
    return max(blocks, key=lambda block: len(wide(r"v\w+p[sd]", block)))


def wide(instruction: str, text: str) -> list[str]:
    """The uses of an instruction on registers of 256 or 512 bits."""
    return re.findall(rf"^\s*{instruction}\s[^\n]*%[yz]mm", text, flags=re.MULTILINE)


@over("unit", UNITS)
@over("direction", ["forward", "projecting", "backward"])
@over("storage", ["float32", "float64", "bfloat16"])
def test_the_loop_over_channels_runs_on_wide_registers(unit: Any, direction: str, storage: str):
    graph, text = kernel(unit, direction, storage)
    loop = hottest(text)
    ending = "pd" if storage == "float64" else "ps"
    functions = sum(line.op in FUNCTIONS for line in graph.lines)
    # Vectors are two registers wide.
    assert len(wide(rf"vf\w*m(?:add|sub)\d+{ending}", loop)) >= 2 * TERMS * functions
    assert len(wide(rf"vdiv{ending}", loop)) >= 2 * functions
    assert wide(rf"vmul{ending}", loop)


@over("unit", UNITS)
@over("direction", ["forward", "projecting", "backward"])
def test_the_loop_over_channels_has_no_arithmetic_on_single_numbers(unit: Any, direction: str):
    _, text = kernel(unit, direction)
    assert not re.findall(
        r"^\s*v(?:add|sub|mul|div|fm|fnm|max|min)\w*s[sd]\b", hottest(text), flags=re.MULTILINE
    )


@over("unit", UNITS)
@over("direction", ["forward", "projecting", "backward"])
def test_a_kernel_calls_no_function_of_the_mathematical_library(unit: Any, direction: str):
    """expf, tanhf and their like take one number at a time; products are functions of the kernel itself."""
    _, text = kernel(unit, direction)
    called = set(re.findall(r"^\s*(?:call|jmp)q?\s+([a-zA-Z_]\w*)", text, flags=re.MULTILINE))
    assert all(name.startswith("product_of_") for name in called), called


@over("direction", ["forward", "projecting", "backward"])
def test_a_product_has_twelve_sums_for_each_two_loads(direction: str):
    """Six rows of two registers, by which the inner loop of a product is bound by arithmetic."""
    _, text = kernel(variant(linnet.RNN), direction)
    blocks = re.split(r"^[.\w]+:", text, flags=re.MULTILINE)
    sums = [len(wide(r"vfmadd\d+ps", block)) for block in blocks if "vbroadcastss" in block]
    assert any(count and count % 12 == 0 for count in sums)
