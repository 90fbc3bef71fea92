"""Which way a scan runs: the reference loop, or a fused kernel."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from linnet.fuse.threads import has_parallel_for

log = logging.getLogger("linnet")
BACKENDS = ("reference", "cpu")
DTYPES = (torch.float32, torch.float64, torch.bfloat16)
chosen: ContextVar[str | None] = ContextVar("linnet_backend", default=None)


@contextmanager
def backend(name: str) -> Iterator[None]:
    """Within this context all modules run by the backend `name`: "reference" or "cpu".

    Without it, each module takes the fused kernel for its device where there is one.
    """
    if name not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(map(repr, BACKENDS))}; got {name!r}")
    token = chosen.set(name)
    try:
        yield
    finally:
        chosen.reset(token)


@cache
def missing() -> str | None:
    """Why no kernel can run here at all, if none can."""
    if find_spec("llvmlite") is None:
        return "the package llvmlite is not installed"
    if not has_parallel_for():
        return f"torch {torch.__version__} does not lend its threads to kernels (2.10 and later do)"
    return None


def unfit(x: Tensor) -> str | None:
    """Why no kernel fits this input, if none does."""
    if x.device.type != "cpu":
        return f"there is no kernel for {x.device.type} yet"
    if x.dtype not in DTYPES:
        return f"there is no kernel for {x.dtype}"
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "torch.func looks inside"
    if torch.autograd.forward_ad._current_level >= 0:
        return "forward-mode gradients look inside"
    return missing()


def may_fuse(unit: str, x: Tensor, reason: str | None = None) -> bool:
    """Whether a kernel may run `unit` on x, unless there is a `reason` against it.

    If not, the log says why, once; where the kernel was asked for by name, it is an error.
    """
    if torch.compiler.is_compiling():
        # A compiler sees neither the context nor the log.
        return reason is None and x.device.type == "cpu" and x.dtype in DTYPES
    if chosen.get() == "reference":
        return False
    reason = reason or unfit(x)
    if reason is not None and chosen.get() == "cpu":
        raise RuntimeError(f'backend("cpu") was asked for, but {unit} cannot run by it: {reason}')
    if reason is not None:
        say_once(unit, reason)
    return reason is None


@cache
def say_once(unit: str, reason: str) -> None:
    log.info("%s runs by the reference loop: %s", unit, reason)
