"""What a module was built with, as its `repr` shows it."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

# Where parameters are, which `repr` of torch's modules does not show either.
HIDDEN = ("device", "dtype")


class ShowsOptions:
    """Remembers the arguments of the constructor, for a `repr` with every option that is not its default."""

    given: tuple[tuple, dict[str, Any]]

    def __new__(cls, *args: Any, **options: Any) -> Self:
        make: Any = super().__new__
        self = make(cls) if make is object.__new__ else make(cls, *args, **options)
        self.__dict__["given"] = (args, options)
        return self

    def options_shown(self) -> dict[str, Any]:
        """The options that differ from their defaults, with their values of now."""
        signature = inspect.signature(type(self))
        args, options = self.given
        values = signature.bind(*args, **options)
        values.apply_defaults()
        passed_on = {name for name, p in signature.parameters.items() if p.kind is p.VAR_KEYWORD}
        named = {
            name: self.__dict__.get(name, v) for name, v in values.arguments.items() if name not in passed_on
        }
        shown = {name: v for name, v in named.items() if v != signature.parameters[name].default}
        # Options that a cell passes on to its projection, such as `norm`, are off by default.
        shown |= {name: v for each in passed_on for name, v in values.arguments[each].items() if v}
        return {name: value for name, value in shown.items() if name not in HIDDEN}

    def extra_repr(self) -> str:
        """The two sizes by position and the rest by name, as in torch."""
        shown = self.options_shown()
        sizes = [str(shown.pop(name)) for name in ("input_size", "hidden_size")]
        return ", ".join([*sizes, *(f"{name}={value!r}" for name, value in shown.items())])
