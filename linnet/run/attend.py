"""Attention of one query after another to a memory, in kernels: see linnet.cpu.attend for the equations.

    attend(score, query, memory)            without gradients; several rows may share a memory
    reading = Reading(score, memory, bias, steps)
    context, weights = reading.attend(query)    at each of `steps` steps, with gradients

`score` is the traced function f(q, k) of `trace_score`. The gradients of the memory are sums over all steps.
Autograd would add them up step by step. `Reading` computes them together when the gradients of all contexts
are known: each step takes a row of zeros as an input, and the gradient of this row is that of the context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from linnet.cpu.attend_inputs import Keys
from linnet.program.readable import unreadable
from linnet.program.trace import Traced, trace
from linnet.run.choose import may_use_cpu_kernel
from linnet.run.samples import for_each_sample

DTYPES = (torch.float32, torch.float64)


def trace_score(function: Callable[[Tensor, Tensor], Tensor]) -> Traced:
    """Trace f(q, k), a pointwise function of a channel of the query and a channel of the key."""
    return trace(lambda inputs, states, weights: (function(inputs["q"], inputs["k"]), {}), ("q", "k"), (), ())


def can_attend(query: Tensor, memory: Keys) -> bool:
    """Whether kernels can run on these tensors."""
    tensors = [query, *memory[:3]]
    alike = all(unreadable(t) is None and t.dtype is query.dtype and t.device.type == "cpu" for t in tensors)
    return alike and query.dtype in DTYPES and may_use_cpu_kernel(query)


def wants_gradients(query: Tensor, memory: Keys) -> bool:
    return torch.is_grad_enabled() and any(t.requires_grad for t in (query, *memory[:3]))


def attend(score: Traced, query: Tensor, memory: Keys) -> tuple[Tensor, Tensor]:
    """query [N, heads * size] -> context [N, heads * size], weights [N, heads, T], without gradients."""
    # Imported when first needed: it needs llvmlite.
    from linnet.cpu.attend_call import run_attend

    return run_attend(score, query.detach(), detached(memory))


def detached(memory: Keys) -> Keys:
    keys, values, vector, mask = memory
    return Keys(keys.detach(), values.detach(), vector.detach(), mask)


class Reading:
    """Attention with one query per sequence at each of `steps` steps."""

    def __init__(self, score: Traced, memory: Keys, bias: Tensor, steps: int):
        """`bias` is added to all scores, so it changes no weight and its gradient is 0."""
        self.record = Record(score, steps)
        zeros = MemoryGradients.apply(self.record, memory.mask, *memory[:3], bias)
        self.memory = memory
        self.rows: Iterator[Any] = zip(*(each.unbind(0) for each in zeros), strict=True)

    def attend(self, query: Tensor) -> tuple[Tensor, Tensor]:
        """query [B, heads * size] -> context [B, heads * size], weights [B, heads, T]."""
        return Attend.apply(self.record, detached(self.memory), query, *next(self.rows))


class Record:
    """The queries and the weights of the steps so far."""

    def __init__(self, score: Traced, steps: int):
        self.score, self.steps = score, steps
        self.queries: list[Tensor] = []
        self.weights: list[Tensor] = []

    def add(self, query: Tensor, weights: Tensor) -> None:
        # Detached: their graphs reference this record, which would be a cycle.
        self.queries.append(query.detach())
        self.weights.append(weights.detach())


class Attend(torch.autograd.Function):
    """One step. It ignores the zeros, and passes them the gradients of the context and of the weights."""

    @staticmethod
    def forward(
        ctx: Any, record: Record, memory: Keys, query: Tensor, zero_context: Tensor, zero_weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        context, weights = attend(record.score, query, memory)
        record.add(query, weights)
        ctx.score, ctx.mask = record.score, memory.mask
        ctx.save_for_backward(query, weights, *memory[:3])
        return context, weights

    @staticmethod
    @for_each_sample
    def backward(ctx: Any, dcontext: Tensor, dweights: Tensor) -> Any:
        refuse_second_derivatives()
        from linnet.cpu.attend_call import run_query

        query, weights, keys, values, vector = ctx.saved_tensors
        memory = Keys(keys, values, vector, ctx.mask)
        dquery = run_query(ctx.score, query, memory, weights, dcontext, dweights)
        return None, None, dquery, dcontext, dweights


class MemoryGradients(torch.autograd.Function):
    """Zeros for each step, contexts [steps, B, heads * size] and weights [steps, B, heads, T]."""

    @staticmethod
    def forward(
        ctx: Any,
        record: Record,
        mask: Tensor | None,
        keys: Tensor,
        values: Tensor,
        vector: Tensor,
        bias: Tensor,
    ) -> tuple[Tensor, Tensor]:
        ctx.record, ctx.mask = record, mask
        ctx.save_for_backward(keys, values, vector)
        batch, heads, length, size = keys.shape
        zero = keys.new_zeros(())
        return zero.expand(record.steps, batch, heads * size), zero.expand(record.steps, batch, heads, length)

    @staticmethod
    @for_each_sample
    def backward(ctx: Any, dcontexts: Tensor, dweights: Tensor) -> Any:
        refuse_second_derivatives()
        from linnet.cpu.attend_call import run_memory

        keys, values, vector = ctx.saved_tensors
        record, memory = ctx.record, Keys(keys, values, vector, ctx.mask)
        queries, weights = torch.stack(record.queries), torch.stack(record.weights)
        gradients = run_memory(record.score, queries, memory, weights, dcontexts, dweights)
        return None, None, *gradients, dcontexts.new_zeros(1)


def refuse_second_derivatives() -> None:
    if torch.is_grad_enabled():
        raise RuntimeError(
            "the kernel of word-by-word attention has no second derivative; "
            'run it within linnet.backend("reference")'
        )
