"""Settings as frozen dataclasses: each field has its help text and its limits.

    @dataclass(frozen=True)
    class Data(Checked):
        batch: int = option(20, "sequences in a batch", least=1)

The fields of such a class are the options of the command line (`--batch`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from linnet.base.suggest import did_you_mean


def option(
    default: Any, text: str, *, choices: tuple = (), least: float | None = None, most: float | None = None
) -> Any:
    """Return a dataclass field with its help text; `choices`, `least` and `most` are checked by `Checked`."""
    about = {"help": text, "choices": choices, "least": least, "most": most}
    if isinstance(default, (dict, list)):
        return field(default_factory=lambda: type(default)(default), metadata=about)
    return field(default=default, metadata=about)


class Checked:
    """A dataclass that checks the values of its fields against their limits."""

    def __post_init__(self) -> None:
        for each in dataclasses.fields(self):  # type: ignore[arg-type]
            check_field(type(self).__name__, each, getattr(self, each.name))


def check_field(owner: str, each: dataclasses.Field, value: Any) -> None:
    choices, least = each.metadata.get("choices", ()), each.metadata.get("least")
    for one in value if isinstance(value, tuple) else (value,):
        check_finite(each.name, one)
    if choices and value is not None:
        for one in value if isinstance(value, tuple) else (value,):
            one_of(each.name, one, choices)
    if least is not None and value is not None and not value >= least:
        raise ValueError(f"{each.name} is at least {least:g}; got {value!r} in {owner}")
    most = each.metadata.get("most")
    if most is not None and value is not None and not value <= most:
        raise ValueError(f"{each.name} is at most {most}; got {value!r} in {owner}")


def settings_from(cls: type, values: Mapping[str, Any]) -> Any:
    """Return the settings of class `cls` from values as JSON has them."""
    if not isinstance(values, Mapping):
        raise ValueError(f"the settings of {cls.__name__} are an object; got {values!r}")
    hints = typing.get_type_hints(cls)
    refuse_unknown(cls.__name__, values, hints)
    return cls(**{name: fit(name, value, hints[name]) for name, value in values.items()})


def refuse_unknown(owner: str, given: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    for name in given:
        if name not in known:
            near = did_you_mean(name, known) or "."
            raise ValueError(f"{owner} has no option {name!r}{near} It takes {', '.join(known)}")


def fit(name: str, value: Any, hint: Any) -> Any:
    """Return `value` as the type `hint` of its field; raise ValueError if it has another type."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return None if value is None else fit(name, value, next(t for t in inner if t is not type(None)))
    if origin is typing.Literal:
        return one_of(name, value, inner)
    if origin is tuple and isinstance(value, (list, tuple)):
        if Ellipsis not in inner and len(value) != len(inner):
            raise ValueError(f"{name} is {len(inner)} numbers; got {len(value)}: {tuple(value)}")
        return tuple(fit(name, each, inner[0]) for each in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    expected = origin or hint
    if not has_type(value, expected):
        raise ValueError(
            f"{name} is {getattr(hint, '__name__', hint)}; got {value!r} ({type(value).__name__})"
        )
    check_finite(name, value)
    return value


def check_finite(name: str, value: Any) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} is a finite number; got {value}")


def has_type(value: Any, expected: Any) -> bool:
    """True and False are not numbers here, although bool is a subclass of int."""
    if expected is Any:
        return True
    return isinstance(value, expected) and not (expected is int and isinstance(value, bool))


def one_of(name: str, value: Any, known: tuple) -> Any:
    if value not in known:
        raise ValueError(
            f"{name} is one of {', '.join(map(str, known))}; got {value!r}{did_you_mean(str(value), known)}"
        )
    return value


def fingerprint(value: Any) -> str:
    """Return twelve hex digits that differ for different values."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
