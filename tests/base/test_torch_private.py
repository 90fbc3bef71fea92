"""torch's private functions that Linnet uses do what it relies on. A failure names the one that changed."""

from __future__ import annotations

import inspect
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import grad, vmap
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

from linnet.base import torch_private as private

ONE = torch.ones(3)
CASES: dict[str, Callable[[], None]] = {}


def of(*names: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """The function is the case of these names."""

    def register(case: Callable[[], None]) -> Callable[[], None]:
        CASES.update(dict.fromkeys(names, case))
        return case

    return register


@pytest.mark.parametrize("name", private.__all__)
def test_it_does_what_linnet_relies_on(name: str):
    assert name in CASES, f"{name} of torch_private.py has no case in this file"
    CASES[name]()


def test_everything_is_listed():
    """What the module defines or renames; those that it only imports are in the list if others use them."""
    defined = {
        name for name, value in vars(private).items() if inspect.getmodule(value) is private and name != "F"
    }
    assert defined <= set(private.__all__)


class Noting(private.DispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


class Doubling(TorchFunctionMode):
    """Doubles the result of every sum."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return 2 * result if func is torch.sum else result


@of("count_dispatch_modes", "disable_current_modes", "DispatchMode")
def modes_of_dispatch() -> None:
    assert private.count_dispatch_modes() == 0
    with Noting() as mode:
        ONE.exp()
        assert private.count_dispatch_modes() == 1
        with private.disable_current_modes():
            ONE.sin()
            assert private.count_dispatch_modes() == 0
    assert mode.seen == ["aten.exp.default"]


def test_a_mode_of_dispatch_does_not_import_the_compiler():
    code = (
        "import sys, torch; from linnet.base.torch_private import DispatchMode\n"
        "class Mode(DispatchMode):\n"
        "    def __torch_dispatch__(self, func, types, args=(), kwargs=None):\n"
        "        return func(*args, **(kwargs or {}))\n"
        "with Mode(): torch.ones(3).exp()\n"
        "assert 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@of("register_onnx_translation")
def translations_to_onnx() -> None:
    pytest.importorskip("onnxscript", reason="the extra onnx is not installed")
    from torch.onnx._internal.exporter._torchlib._torchlib_registry import get_torchlib_ops

    operation = torch.ops.linnet.scan_backward.default  # never exported
    private.register_onnx_translation(operation, len)
    found = [each for each in get_torchlib_ops() if each.fx_target is operation]
    assert [each.onnx_function for each in found] == [len]


@of("tracing_state", "set_tracing_state")
def tracing() -> None:
    found = []

    def traced(x: Tensor) -> Tensor:
        state = private.tracing_state()
        private.set_tracing_state(None)
        found.extend([state is not None, private.tracing_state()])
        private.set_tracing_state(state)
        return x.exp()

    assert private.tracing_state() is None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.trace(traced, ONE, check_trace=False)
    assert found == [True, None]
    assert private.tracing_state() is None


@of("disable_torch_functions")
def no_functions() -> None:
    with torch.device("meta"), private.disable_torch_functions():
        assert torch.empty(1).device.type == "cpu"


@of("only_mode")
def one_mode_of_functions() -> None:
    with Doubling(), Doubling():
        assert torch.sum(ONE) == 12
        with private.disable_torch_functions(), private.only_mode(Doubling()):
            assert torch.sum(ONE) == 6
        assert torch.sum(ONE) == 12


class Plain(Tensor):
    __torch_function__ = private.plain_torch_function


@of("plain_torch_function")
def plain_class_of_tensors() -> None:
    assert type(ONE.as_subclass(Plain) + 1) is Tensor


@of("FakeTensor")
def fake_tensors() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        assert type(torch.empty(2)) is private.FakeTensor


@of("transform", "transforms", "TransformType", "temporarily_clear_interpreter_stack")
def transforms_of_torch_func() -> None:
    found: list[Any] = []

    def function(x: Tensor) -> Tensor:
        found.append([interpreter.key() for interpreter in private.transforms()])
        found.append(private.transform().key())
        with private.temporarily_clear_interpreter_stack():
            found.append(private.transform())
        return x.exp()

    assert private.transform() is None
    vmap(grad(function))(ONE)
    kinds = private.TransformType
    assert found == [[kinds.Vmap, kinds.Grad], kinds.Grad, None]
    assert private.transform() is None


@of("is_forward_mode")
def forward_mode() -> None:
    assert not private.is_forward_mode()
    with forward_ad.dual_level():
        assert private.is_forward_mode()


class Batched(torch.autograd.Function):
    """x, with a backward that notes what it is given and adds the number of its sample to each."""

    seen: list[Tensor] = []

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, above: Tensor) -> Tensor:  # type: ignore[override]
        assert private.is_legacy_batched(above)
        level = private.legacy_vmap_level()
        size = len(private.remove_batch_dim(above, level, 1, 0))
        whole = private.remove_batch_dim(above, level, size, 0)
        assert not private.is_legacy_batched(whole)
        return private.add_batch_dim(whole + torch.arange(size)[:, None], 0, level)


@of("is_legacy_batched", "legacy_vmap_level", "remove_batch_dim", "add_batch_dim")
def vmap_of_autograd() -> None:
    x = ONE.clone().requires_grad_()
    (found,) = torch.autograd.grad(Batched.apply(x), x, torch.eye(3), is_grads_batched=True)
    assert torch.equal(found, torch.eye(3) + torch.arange(3)[:, None])


@of("foreach_lerp_")
def averages() -> None:
    shadows = [torch.zeros(2), torch.ones(3)]
    private.foreach_lerp_(shadows, [torch.ones(2), torch.zeros(3)], 0.25)
    assert [shadow.tolist() for shadow in shadows] == [[0.25] * 2, [0.75] * 3]


@of("has_any_global_hook")
def global_hooks() -> None:
    assert not private.has_any_global_hook()
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert private.has_any_global_hook()
    finally:
        handle.remove()
    assert not private.has_any_global_hook()


@of("decompositions")
def decomposed() -> None:
    rule = private.decompositions()[torch.ops.aten.silu.default]
    torch.testing.assert_close(rule(ONE), nn.functional.silu(ONE))


@of("mark_constant")
def constants_of_a_compiler() -> None:
    @private.mark_constant
    def untraceable(number: int) -> int:
        return next(iter([number * int(sys.maxsize > 0)]))

    compiled = torch.compile(lambda x: x * untraceable(3), backend="eager", fullgraph=True)
    assert torch.equal(compiled(ONE), 3 * ONE)


@of("without_saved_tensors_hooks")
def saved_tensors() -> None:
    found: list[Any] = []

    def function(x: Tensor) -> Tensor:
        with private.without_saved_tensors_hooks():
            found.append(x.exp().grad_fn._saved_result)
        return x.exp()

    x = ONE.clone().requires_grad_()
    checkpoint(function, x, use_reentrant=False).sum().backward()
    assert all(torch.equal(saved, ONE.exp()) for saved in found)
    assert len(found) == 2  # and the checkpoint, whose hooks came back, has computed it again


@of("tree_leaves", "tree_map", "tree_map_only", "tree_flatten_with_path")
def trees() -> None:
    tree = {"a": [1, (2, None)], "b": 3}
    assert private.tree_leaves(tree) == [1, 2, None, 3]
    assert private.tree_map(str, tree) == {"a": ["1", ("2", "None")], "b": "3"}
    assert private.tree_map_only(int, lambda n: -n, tree) == {"a": [-1, (-2, None)], "b": -3}
    pairs, _ = private.tree_flatten_with_path({"a": [5]})
    assert [(len(path), value) for path, value in pairs] == [(2, 5)]


def test_attributes_of_tensors_and_modules():
    """These are read where they are needed: counters of changes, addresses, and the dicts of a module."""
    x = torch.zeros(3)
    version = x._version
    x.add_(1)
    assert x._version == version + 1
    assert x[1:]._is_view()
    assert x[1:].untyped_storage()._cdata == x.untyped_storage()._cdata != ONE.untyped_storage()._cdata
    linear = nn.Sequential(nn.Linear(2, 2))
    assert list(linear._modules) == ["0"]
    assert list(linear[0]._parameters) == ["weight", "bias"]
    assert linear._buffers == {}
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    assert [getattr(linear, name) for name in hooks] == [{}] * 4
