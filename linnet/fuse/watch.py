"""Detects whether a module has changed since something was prepared for it.

Inspecting a module through its interface at each step would cost more than the step. `Watch` compares the
objects in the dictionaries of all modules inside, in a few calls of C code: parameters, modules, modes,
options, replaced methods. It does not detect weights that change in place, which it need not: kernels read
the weights themselves.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from itertools import chain
from operator import is_, itemgetter
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from linnet.fuse.hooks import has_replaced_forward
from linnet.fuse.plan_cache import PlanCache
from linnet.fuse.settings import Settings
from linnet.fuse.unit import Unit

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
INSIDE = itemgetter("_parameters", "_modules")
# How many attributes a module without any of its own has, such as nn.Identity. It can only gain attributes.
BARE = len(vars(nn.Module()))


class Watch:
    """Watches the modules in `root`; a hook on one of those in `unhooked` is a change, too.

    It references the modules inside `root` and all of their objects, but not `root` itself, which may
    reference it.
    """

    def __init__(self, root: nn.Module, unhooked: list[nn.Module]):
        _, *self.modules = root.modules()
        self.kinds = [type(module) for module in self.modules]
        spaces = [vars(module) for module in self.modules]
        self.bare = [space for space in spaces if len(space) <= BARE]
        self.spaces = [space for space in spaces if len(space) > BARE]
        self.inside = [each for space in self.spaces for each in INSIDE(space)]
        self.parameters = [root._parameters, *(space["_parameters"] for space in self.spaces)]
        self.tensors = list(values_in(self.parameters))
        self.read = [root._modules, *self.spaces, *(space["_modules"] for space in self.spaces)]
        self.objects = list(values_in(self.read))
        self.root_objects = objects_of(root)
        self.hooks = [getattr(module, name) for module in unhooked for name in HOOKS]
        self.hooked = any(self.hooks) or any(map(has_replaced_forward, unhooked)) or _has_any_global_hook()
        self.placed = [tensor for tensor in self.tensors if tensor is not None]
        self.addresses = self.addresses_now()
        self.settings: list[tuple[Settings, Callable[[], Any], tuple]] = []

    def watch_settings(self, settings: Settings, cell: Unit) -> None:
        """Watch settings that a step reads, if they can change inside an object."""
        if settings.can_change_inside(cell):
            self.settings.append((settings, weakref.ref(cell), settings.key(cell)))

    def holds(self, root: nn.Module) -> bool:
        """Whether nothing has changed in `root`, the module that this was made for."""
        return (
            self.objects_hold(root)
            and all(map(is_, chain.from_iterable(map(INSIDE, self.spaces)), self.inside))
            and sum(map(len, self.parameters)) == len(self.tensors)
            and all(map(is_, values_in(self.parameters), self.tensors))
            and self.addresses_now() == self.addresses
            and not any(self.hooks)
            and sum(map(len, self.bare)) == BARE * len(self.bare)
            and all(map(is_, map(type, self.modules), self.kinds))
            and not _has_any_global_hook()
            and not (self.settings and self.settings_changed())
        )

    def objects_hold(self, root: nn.Module) -> bool:
        """Python compares the objects of two lists by `is` first, so this is fast unless one has changed."""
        try:
            return list(values_in(self.read)) == self.objects and objects_of(root) == self.root_objects
        except (RuntimeError, ValueError):  # two different tensors or arrays
            return False

    def addresses_now(self) -> list:
        """These change with the tensor in `parameter.data`: addresses, shapes, layout."""
        tensors = self.placed
        return [
            *map(Tensor.data_ptr, tensors),
            *map(Tensor.size, tensors),
            all(map(Tensor.is_contiguous, tensors)),
        ]

    def settings_changed(self) -> bool:
        return any(settings.key(cell()) != key for settings, cell, key in self.settings)


def objects_of(root: nn.Module) -> list:
    """Its class and its attributes, without the plan cache, which may hold what is prepared."""
    return [type(root), *(value for value in vars(root).values() if type(value) is not PlanCache)]


def values_in(spaces: list[dict]) -> Iterator:
    return chain.from_iterable(map(dict.values, spaces))
