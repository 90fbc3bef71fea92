"""All of torch's private functions and classes that Linnet uses, under names without underscores.

torch may change these in any version. tests/base/test_torch_private.py calls each of them and names the one
that has changed; tests/test_structure.py keeps all other files from reading such names.

They are bound here as they are, without functions around them: calls of a kernel ask several of them, and
torch.compile knows them as torch's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import _C
from torch._C import _functorch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad
from torch.nn.modules.module import _has_any_global_hook as has_any_global_hook
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._python_dispatch import _disable_current_modes as disable_current_modes
from torch.utils._pytree import tree_flatten_with_path, tree_leaves, tree_map, tree_map_only

from linnet.base.imports import when_imported

__all__ = [
    "DispatchMode",
    "FakeTensor",
    "TransformType",
    "add_batch_dim",
    "count_dispatch_modes",
    "decompositions",
    "disable_current_modes",
    "disable_torch_functions",
    "foreach_lerp_",
    "has_any_global_hook",
    "is_forward_mode",
    "is_legacy_batched",
    "legacy_vmap_level",
    "mark_constant",
    "only_mode",
    "plain_torch_function",
    "register_onnx_translation",
    "remove_batch_dim",
    "set_tracing_state",
    "temporarily_clear_interpreter_stack",
    "tracing_state",
    "transform",
    "transforms",
    "tree_flatten_with_path",
    "tree_leaves",
    "tree_map",
    "tree_map_only",
    "without_saved_tensors_hooks",
]

F = TypeVar("F", bound=Callable[..., Any])
# Without types: torch's stubs leave out many of them.
C: Any = _C
FUNC: Any = _functorch

# How many modes of dispatch are active, those of compilers and tracers too.
count_dispatch_modes: Callable[[], int] = C._len_torch_dispatch_stack
# What torch.jit.trace has recorded so far; None outside of it.
tracing_state: Callable[[], Any] = C._get_tracing_state
set_tracing_state: Callable[[Any], None] = C._set_tracing_state
# A context in which no mode of functions is active, a default device included.
disable_torch_functions = C.DisableTorchFunction
# The `__torch_function__` of a class of tensors that torch's functions take as plain ones, as nn.Parameter.
plain_torch_function = C._disabled_torch_function_impl

# The innermost transform of torch.func, or None; and all of them.
transform: Callable[[], Any] = FUNC.peek_interpreter_stack
transforms: Callable[[], list[Any]] = FUNC.get_interpreter_stack
TransformType = FUNC.TransformType
# The vmap of torch.autograd, which is older than torch.func.
is_legacy_batched: Callable[[Any], bool] = FUNC.is_legacy_batchedtensor
remove_batch_dim: Callable[..., torch.Tensor] = torch._remove_batch_dim
add_batch_dim: Callable[..., torch.Tensor] = torch._add_batch_dim

# shadows, values, weight: shadow += weight (value - shadow) for each pair.
foreach_lerp_: Callable[..., None] = torch._foreach_lerp_


class DispatchMode(TorchDispatchMode):
    """A mode of dispatch whose first use does not import the whole compiler, which takes 1.5 s."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


def is_forward_mode() -> bool:
    """Whether gradients are computed in forward mode."""
    return forward_ad._current_level >= 0


def legacy_vmap_level() -> int:
    """The level of the vmap of torch.autograd in which this is called."""
    level = C._vmapmode_increment_nesting() - 1
    C._vmapmode_decrement_nesting()
    return level


def decompositions() -> Mapping[Any, Callable[..., Any]]:
    """Operations of torch in terms of others. They are imported when needed, which takes half a second."""
    from torch._decomp import decomposition_table

    return decomposition_table


def mark_constant(function: F) -> F:
    """As torch.compiler.assume_constant_result, which would import the compiler."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def register_onnx_translation(operation: Any, translate: Callable[..., Any]) -> None:
    """Let torch.onnx.export translate an operation by a function from values of ONNX to values of ONNX.

    torch has no such function in public: `custom_translation_table` is an argument of each export. Its own
    translations are imported, together with onnxscript, by the first export.
    """

    def register() -> None:
        from torch.onnx._internal.exporter._torchlib._torchlib_registry import onnx_impl

        onnx_impl(operation, no_compile=True)(translate)

    when_imported("torch.onnx._internal.exporter._torchlib.ops", register)


@contextmanager
def only_mode(mode: TorchFunctionMode) -> Iterator[None]:
    """Within this context, `mode` is the only mode of functions, even where these are turned off."""
    others = []
    while C._len_torch_function_stack():
        others.append(C._pop_torch_function_stack())
    try:
        with C._EnableTorchFunction(), mode:
            yield
    finally:
        while others:
            C._push_on_torch_function_stack(others.pop())


@contextmanager
def without_saved_tensors_hooks() -> Iterator[None]:
    """Within this context, tensors that autograd saves are saved as they are."""
    autograd, hooks = C._autograd, []
    while (top := autograd._top_saved_tensors_default_hooks(True)) is not None:
        hooks.append(top)
        autograd._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        while hooks:
            autograd._push_saved_tensors_default_hooks(*hooks.pop())
