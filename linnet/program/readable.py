"""Calls that a compiler or a tracer records, and tensors on which no kernel can run."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from linnet.base.torch_private import (
    FakeTensor,
    TransformType,
    count_dispatch_modes,
    is_forward_mode,
    tracing_state,
    transform,
    transforms,
)


def is_recorded(x: Tensor) -> bool:
    """Whether operations are recorded: by a compiler, a tracer, a dispatch mode or on fake tensors.

    A recorder must see a registered operation. If a kernel were called by its address, the recorder would
    find memory that no operation has written.
    """
    return is_recording() or type(x) is FakeTensor


def is_recording() -> bool:
    return torch.compiler.is_compiling() or is_dispatched()


def is_dispatched() -> bool:
    """`is_recording` for code that no compiler traces."""
    return count_dispatch_modes() > 0 or tracing_state() is not None


def is_transformed() -> bool:
    """Whether torch.func or forward-mode gradients need the operations themselves."""
    return transform() is not None or is_forward_mode()


def is_transformed_by_func() -> bool:
    """Whether torch.func transforms a call; for code that no compiler traces."""
    return transform() is not None


def has_rule(interpreter: Any) -> bool:
    """Whether this transform of torch.func knows Linnet's operations; see run/transformed.py."""
    return interpreter.key() in (TransformType.Grad, TransformType.Vmap)


def is_plain_tensor(x: Tensor) -> bool:
    return type(x) in (Tensor, nn.Parameter, FakeTensor)


def unreadable(tensor: Tensor) -> str | None:
    """Why kernels cannot read the memory of a tensor, or None."""
    if not is_plain_tensor(tensor):
        return f"is of the class {type(tensor).__name__}"
    if tensor.layout is not torch.strided:
        return f"has the layout {tensor.layout}"
    if tensor.is_neg():
        return "has torch's negative bit set, so its memory has the other sign; use .resolve_neg()"
    return None


def opaque_to_kernels(x: Tensor) -> str | None:
    """Why no kernel can be called on x, by the address of its memory; or None."""
    if is_transformed_by_func():
        return "torch.func transforms the operations of its step"
    return opaque_to_operations(x)


def opaque_to_operations(x: Tensor) -> str | None:
    """Why no registered operation can run on x, which needs the operations of the step itself; or None."""
    if is_transformed_by_func() and not all(map(has_rule, transforms())):
        return "this transform of torch.func needs the operations of its step"
    if is_forward_mode():
        return "forward-mode gradients need the operations of its step"
    if not is_plain_tensor(x):
        return f"x is of the class {type(x).__name__}, which may define its own operations"
    if is_in_older_onnx_export():
        return "torch's older exporter to ONNX does not know Linnet's operations"
    return None


def is_in_older_onnx_export() -> bool:
    """Whether torch.onnx.export(dynamo=False), which traces, is running."""
    if tracing_state() is None:
        return False
    from torch.onnx import is_in_onnx_export

    return is_in_onnx_export()
