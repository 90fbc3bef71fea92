"""Runs the kernels of attention on tensors."""

from __future__ import annotations

from array import array

import torch
from torch import Tensor

from linnet.cpu import jit
from linnet.cpu.attend import OPERANDS, AttendRecipe, emit
from linnet.cpu.attend_inputs import Keys
from linnet.cpu.kernel_cache import KernelCache
from linnet.cpu.memory import new_empty
from linnet.cpu.threads import grain
from linnet.cpu.width import vector_width
from linnet.program.trace import Traced

KERNELS: KernelCache[jit.Compiled] = KernelCache(recent=8)


def run_attend(score: Traced, query: Tensor, memory: Keys) -> tuple[Tensor, Tensor]:
    """Return the context [N, heads * size] and the weights [N, heads, T]."""
    _, heads, length, _ = memory.keys.shape
    context = new_empty(tuple(query.shape), query.dtype)
    weights = new_empty((len(query), heads, length), query.dtype)
    run("attend", score, memory, {"q": query, "a": weights, "c": context})
    return context, weights


def run_query(
    score: Traced, query: Tensor, memory: Keys, weights: Tensor, dcontext: Tensor, dweights: Tensor
) -> Tensor:
    """Return the gradient of the query."""
    dquery = new_empty(tuple(query.shape), query.dtype)
    above = {"dc": dcontext, "da": dweights, "ds": torch.empty_like(weights)}
    run("query", score, memory, {"q": query, "a": weights, **above, "dq": dquery})
    return dquery


def run_memory(
    score: Traced, queries: Tensor, memory: Keys, weights: Tensor, dcontexts: Tensor, dweights: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of keys, values and vector, summed over all steps."""
    batch, heads, _, size = memory.keys.shape
    dkeys, dvalues = (new_empty(tuple(t.shape), t.dtype) for t in memory[:2])
    # Sums over the steps for each row of the batch, in an order that does not depend on the threads.
    dvector = new_empty((batch * heads, size), queries.dtype)
    above = {"dc": dcontexts, "da": dweights, "ds": torch.empty_like(weights)}
    run(
        "memory",
        score,
        memory,
        {"q": queries, "a": weights, **above, "dk": dkeys, "dv": dvalues, "dw": dvector},
    )
    return dkeys, dvalues, dvector.sum(0)


def run(name: str, score: Traced, memory: Keys, others: dict[str, Tensor]) -> None:
    batch, heads, length, size = memory.keys.shape
    mask = None if memory.mask is None else memory.mask.contiguous()
    operands = {"k": memory.keys, "v": memory.values, "w": memory.vector, **others}
    # Referenced until the kernel has run.
    laid_out = {operand: tensor.resolve_neg().contiguous() for operand, tensor in operands.items()}
    steps, rows = (len(others["q"]), batch) if name == "memory" else (1, len(others["q"]))
    sizes = [steps, rows, rows // batch, heads, length, size, 0 if mask is None else mask.data_ptr()]
    addresses = [laid_out[operand].data_ptr() for operand in OPERANDS[name]]
    numbers = array("q", [*sizes, *addresses])
    recipe = AttendRecipe(score, 8 * memory.keys.element_size(), vector_width(memory.keys.dtype), name)
    function = KERNELS.get(recipe, lambda: jit.compile_recipe(recipe, emit, name))
    jit.run(function, rows * heads, grain(steps * length * size), numbers)
