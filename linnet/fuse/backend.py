"""Which way a scan runs: the reference loop, or a fused kernel."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from linnet.fuse.cpu.threads import has_parallel_for
from linnet.fuse.unit import ByNature

log = logging.getLogger("linnet")
BACKENDS = ("reference", "cpu", "triton")
DTYPES = (torch.float32, torch.float64, torch.bfloat16)
TRITON_DTYPES = (*DTYPES, torch.float16)
# Looked for when this is imported, and not imported themselves: a compiler that asks later cannot look.
HAS_TRITON = find_spec("triton") is not None
HAS_LLVM = find_spec("llvmlite") is not None
NO_LLVM = "the package llvmlite is not installed"
chosen: ContextVar[str | None] = ContextVar("linnet_backend", default=None)


class FallbackWarning(UserWarning):
    """A unit runs by the reference loop, many times slower than by the kernel that it could have."""


@contextmanager
def backend(name: str | None) -> Iterator[None]:
    """Within this context all modules run by the backend `name`: "reference", "cpu" or "triton".

    Without it, or with None, each module takes the fused kernel for its device where there is one.
    """
    if name is not None and name not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(map(repr, BACKENDS))}; got {name!r}")
    token = chosen.set(name)
    try:
        yield
    finally:
        chosen.reset(token)


def is_watched(x: Tensor) -> bool:
    """Whether somebody records what torch dispatches: a compiler, a tracer, a dispatch mode, a fake tensor.

    They must see a registered operation. A kernel called by its address would leave them with memory that
    nobody, as far as they know, has written to.
    """
    return (
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._get_tracing_state() is not None
        or type(x) is FakeTensor
    )


def runs_by_triton(x: Tensor) -> bool:
    """Whether x calls for Triton's kernels: by the backend that was chosen, or else by its device."""
    if torch.compiler.is_compiling() or chosen.get() is None:
        return x.device.type == "cuda"
    return chosen.get() == "triton"


def has_triton() -> bool:
    """Whether Triton's kernels can run; what finds their operands needs LLVM's package too."""
    return HAS_TRITON and HAS_LLVM


@cache
def missing() -> str | None:
    """Why no kernel for the CPU can run here at all, if none can."""
    if not HAS_LLVM:
        return NO_LLVM
    if not has_parallel_for():
        return f"torch {torch.__version__} does not lend its threads to kernels (2.10 and later do)"
    return None


def unfit(x: Tensor) -> str | None:
    """Why no kernel fits this input, if none does."""
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "torch.func looks inside"
    if torch.autograd.forward_ad._current_level >= 0:
        return "forward-mode gradients look inside"
    if not is_plain_tensor(x):
        return f"x is of the class {type(x).__name__}, which may have a way of its own to compute"
    if torch._C._get_tracing_state() is not None and is_in_onnx_export():
        return "this exporter to ONNX does not know Linnet's operations; linnet.export_onnx does"
    return unfit_for_triton(x) if runs_by_triton(x) else unfit_for_cpu(x)


def is_in_onnx_export() -> bool:
    """Whether torch's older exporter, which traces, is at work."""
    from torch.onnx import is_in_onnx_export

    return is_in_onnx_export()


def is_plain_tensor(x: Tensor) -> bool:
    return type(x) in (Tensor, nn.Parameter, FakeTensor)


def unfit_for_cpu(x: Tensor) -> str | None:
    if x.device.type != "cpu":
        return f"there is no kernel for {x.device.type}"
    return missing() if x.dtype in DTYPES else f"there is no kernel for {x.dtype}"


def unfit_for_triton(x: Tensor) -> str | None:
    if not HAS_LLVM:
        return NO_LLVM
    if not HAS_TRITON:
        return "the package triton is not installed; pip install linnet-rnn[triton]"
    if x.device.type != "cuda" and not is_interpreted():
        return (
            f"x is on {x.device}, and Triton's kernels run on a GPU; move the module and x with .to('cuda')"
        )
    return None if x.dtype in TRITON_DTYPES else f"there is no Triton kernel for {x.dtype}"


def is_interpreted() -> bool:
    """Whether Triton runs its kernels by NumPy on the CPU in this process: slowly, but without a GPU."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


def may_fuse(unit: str, x: Tensor, reason: str | None = None) -> bool:
    """Whether a kernel may run `unit` on x, unless there is a `reason` against it.

    If not, a warning says why, once; where the kernel was asked for by name, it is an error.
    """
    if torch.compiler.is_compiling():
        # A compiler sees neither the context nor the log.
        return reason is None and may_compile(x)
    if chosen.get() == "reference":
        return False
    reason = reason or unfit(x)
    if reason is not None and chosen.get() is not None:
        raise RuntimeError(f'backend("{chosen.get()}") was asked for, but {unit} cannot run by it: {reason}')
    if reason is not None:
        say_once(unit, reason)
    return reason is None


def may_compile(x: Tensor) -> bool:
    if x.device.type == "cuda":
        return x.dtype in TRITON_DTYPES and has_triton()
    return x.device.type == "cpu" and x.dtype in DTYPES and HAS_LLVM


@cache
def say_once(unit: str, reason: str) -> None:
    text = f"{unit} runs by the reference loop: {reason}"
    if isinstance(reason, ByNature):
        log.info(text)
    else:
        warnings.warn(
            f'{text}. linnet.backend("reference") asks for the loop.', FallbackWarning, stacklevel=2
        )
