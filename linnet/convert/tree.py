"""Find layers in a tree of modules, and put others in their places."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from torch import nn

# Whether a module is one that might be replaced; what it contains is then not searched.
IsLayer = Callable[[nn.Module], bool]


@dataclass(eq=False)
class Slot:
    """A layer, and all of its places in a model: a module that is used twice is one slot."""

    layer: nn.Module
    paths: list[str] = field(default_factory=list)
    # The modules that contain it, with its name there; none for the model itself.
    parents: list[tuple[nn.Module, str]] = field(default_factory=list)

    @property
    def path(self) -> str:
        return " = ".join(path or "(the model)" for path in self.paths)

    def put(self, module: nn.Module) -> None:
        for parent, name in self.parents:
            # Not by setattr: a parent may have a setter of its own, and its order of children stays.
            parent._modules[name] = module


def find(model: nn.Module, is_layer: IsLayer) -> list[Slot]:
    """Return the layers of a model in the order of its modules, each once."""
    found: dict[int, Slot] = {}
    for path, parent, module in walk(model, is_layer):
        slot = found.setdefault(id(module), Slot(module))
        slot.paths.append(path)
        name = path.rpartition(".")[2]
        if parent is not None and (parent, name) not in slot.parents:
            slot.parents.append((parent, name))
    return list(found.values())


def walk(
    module: nn.Module, is_layer: IsLayer, path: str = "", above: tuple[nn.Module, ...] = ()
) -> Iterator[tuple[str, nn.Module | None, nn.Module]]:
    """Yield each place of each layer: its path, the module that contains it, and itself."""
    if is_layer(module):
        yield path, above[-1] if above else None, module
        return
    for name, child in module._modules.items():
        # A module may be registered in one that it contains.
        if child is not None and child not in (*above, module):
            yield from walk(child, is_layer, f"{path}.{name}".lstrip("."), (*above, module))


class Swap:
    """A model with some layers replaced: `original()` and `replaced()` put either of them in place."""

    def __init__(self, model: nn.Module, slots: Sequence[Slot], layers: Sequence[nn.Module]):
        self.model, self.pairs = model, list(zip(slots, layers, strict=True))

    def original(self) -> nn.Module:
        for slot, _ in self.pairs:
            slot.put(slot.layer)
        return self.model

    def replaced(self) -> nn.Module:
        for slot, layer in self.pairs:
            slot.put(layer)
        # The model itself may be a layer.
        return next((layer for slot, layer in self.pairs if "" in slot.paths), self.model)

    def drop(self, slot: Slot) -> None:
        """Keep the original of one layer."""
        slot.put(slot.layer)
        self.pairs = [pair for pair in self.pairs if pair[0] is not slot]
