"""Detects whether a module has changed since something was prepared for it.

Inspecting a module through its interface at each step would cost more than the step. `Watch` compares the
objects in the dictionaries of all modules inside, in a few calls of C code: parameters, buffers, modules,
modes, options, replaced methods. It does not detect weights that change in place, which it need not: kernels
read the weights themselves. Only int8 matrices are read from packed copies; `Originals` detects whether the
tensors have changed that such copies were made from.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter, is_, itemgetter
from typing import Any

from torch import Tensor, is_tensor, nn

from linnet.base.torch_private import has_any_global_hook
from linnet.program.owned import owned_by_another
from linnet.program.settings import Settings
from linnet.program.unit import Unit
from linnet.run.hooks import has_replaced_forward

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
PARAMETERS, BUFFERS = itemgetter("_parameters"), itemgetter("_buffers")
# How many attributes a module without any of its own has, such as nn.Identity. It can only gain attributes.
BARE = len(vars(nn.Module()))


class Originals:
    """Tensors that a copy was made from: have they changed since?

    torch counts changes in place, but not those through `.data` or NumPy, nor those of inference tensors. An
    assignment to `.data` is not counted either; it changes the address.
    """

    def __init__(self, tensors: Sequence[Tensor]):
        self.tensors = tensors
        # A compiler's tensors have no memory, and torch does not count the changes of an inference tensor.
        self.are_counted = all(type(t) in (Tensor, nn.Parameter) and not t.is_inference() for t in tensors)
        # They keep the memory, so that no other tensor gets its address.
        self.memory = [tensor.detach() for tensor in tensors]
        self.state = self.now() if self.are_counted else None

    def now(self) -> list:
        tensors = self.tensors
        layout = (*map(Tensor.data_ptr, tensors), *map(Tensor.size, tensors), *map(Tensor.stride, tensors))
        return [*layout, *map(attrgetter("dtype"), tensors), *map(attrgetter("_version"), tensors)]

    def hold(self) -> bool:
        return self.are_counted and self.now() == self.state


class Watch:
    """Watches the modules in `root`, and whether one of those in `unhooked` has a hook.

    It references the modules inside `root` and all of their objects, but not `root` itself, which may
    reference it.
    """

    def __init__(self, root: nn.Module, unhooked: list[nn.Module]):
        _, *self.modules = root.modules()
        self.kinds = [type(module) for module in self.modules]
        spaces = [vars(module) for module in self.modules]
        self.bare = [space for space in spaces if len(space) <= BARE]
        self.spaces = [space for space in spaces if len(space) > BARE]
        own = vars(root)
        # Not a cache, which may hold what is prepared.
        watched = [name for name, value in own.items() if not getattr(type(value), "is_cache", False)]
        self.kind, self.size, self.read_root = type(root), len(own), itemgetter(*watched)
        self.root_objects = self.read_root(own)
        # A module that had no parameters or buffers can only gain some, which nothing reads that was decided
        # before. What `root` holds and a module inside reads is watched once.
        read = [] if own.get("is_owner", False) else map(owned_by_another, self.spaces)
        held_inside = chain(map(PARAMETERS, self.spaces), map(BUFFERS, self.spaces), read)
        self.tensors = [tensors for tensors in held_inside if tensors]
        self.objects = self.objects_now(own)
        held = (own["_parameters"], own["_buffers"], *self.tensors)
        self.placed = [tensor for tensors in held for tensor in tensors.values() if tensor is not None]
        # Of these, two that are not the same object may be equal; larger ones cannot be compared as a whole.
        self.tiny = any(tensor.numel() == 1 for tensor in self.placed)
        self.hooks = [getattr(module, name) for module in unhooked for name in HOOKS]
        self.had_hooks = any(self.hooks) or has_any_global_hook()
        self.hooked = self.had_hooks or any(map(has_replaced_forward, unhooked))
        self.addresses = self.addresses_now()
        self.originals = Originals(list(copied_in(self.modules)))
        self.settings: list[tuple[Settings, Callable[[], Any], tuple]] = []

    def watch_settings(self, settings: Settings, cell: Unit) -> None:
        """Watch settings that a step reads, if they can change inside an object."""
        if settings.can_change_inside(cell):
            self.settings.append((settings, weakref.ref(cell), settings.key(cell)))

    def holds(self, root: nn.Module) -> bool:
        """Whether nothing has changed in `root`, the module that this was made for.

        Python compares the objects of two lists by `is` first, so this is fast unless one has changed.
        """
        own = vars(root)
        try:
            objects = self.objects_now(own)
            if self.read_root(own) != self.root_objects or objects != self.objects:
                return False
        except (KeyError, RuntimeError, ValueError):  # an attribute is gone; two different tensors or arrays
            return False
        return (
            type(root) is self.kind
            and len(own) == self.size
            and self.addresses_now() == self.addresses
            and sum(map(len, self.bare)) == BARE * len(self.bare)
            and list(map(type, self.modules)) == self.kinds
            and (any(self.hooks) or has_any_global_hook()) is self.had_hooks
            and not (self.tiny and not all(map(is_, objects, self.objects)))
            and (not self.originals.tensors or self.originals.hold())
            and not (self.settings and self.settings_changed())
        )

    def objects_now(self, own: dict) -> list:
        """Modules, parameters and buffers, and all attributes of the modules inside."""
        # A loop over dictionaries takes less time than one chain of their items.
        objects = [*own["_modules"].values(), *own["_parameters"].values(), *own["_buffers"].values()]
        for space in self.spaces:
            objects += space.values()
            objects += space["_modules"].values()
        for tensors in self.tensors:
            objects += tensors.values()
        return objects

    def addresses_now(self) -> list:
        """These change with an assignment to `.data`: addresses, shapes, layout, the negative bit."""
        tensors = self.placed
        return [
            *map(Tensor.data_ptr, tensors),
            *map(Tensor.size, tensors),
            all(map(Tensor.is_contiguous, tensors)),
            any(map(Tensor.is_neg, tensors)),
        ]

    def settings_changed(self) -> bool:
        return any(settings.key(cell()) != key for settings, cell, key in self.settings)


def copied_in(modules: Iterable[nn.Module]) -> Iterator[Tensor]:
    """The tensors of those modules that keep packed copies of them."""
    for module in modules:
        if getattr(type(module), "keeps_copies", False):
            held = (*module._parameters.values(), *module._buffers.values())
            yield from filter(is_tensor, held)
