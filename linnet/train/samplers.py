"""Optuna's samplers and pruners by their names: `tpe` is TPESampler, `hyperband` is HyperbandPruner."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, NamedTuple

from linnet.base.suggest import no_such
from linnet.runs.errors import missing

SHRINKING = "shrinking"
"""The search of Kabdolov et al. (2018), which is none of Optuna's samplers."""
NO_PRUNER = "nop"
NEEDS = {"cmaes": "cmaes"}
"""Packages that a sampler imports only when it draws for the first time, which may be after hours."""
WITHIN = {
    "wrapped_pruner": "pruner",
    "base_sampler": "sampler",
    "independent_sampler": "sampler",
}
"""Options that are themselves a pruner or a sampler, given by its name."""


class Method(NamedTuple):
    """A sampler or a pruner, with its options."""

    name: str
    options: Mapping[str, Any] = {}


def make(optuna: Any, kind: str, method: Method) -> Any:
    """Return the sampler or the pruner (`kind`) of this name."""
    known = classes(optuna, kind)
    name = short(method.name, kind)
    if name not in known:
        raise ValueError(no_such(kind, method.name, [*([SHRINKING] if kind == "sampler" else []), *known]))
    cls = known[name]
    given = {key: nested(optuna, key, value) for key, value in method.options.items()}
    check_options(kind, name, cls, given)
    if name in NEEDS and not find_spec(NEEDS[name]):
        raise missing(f"the {kind} {name}", NEEDS[name])
    with warnings.catch_warnings():
        # That some may change with a version of Optuna concerns its callers, not who chooses one by name.
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return cls(**given)


def classes(optuna: Any, kind: str) -> dict[str, Any]:
    """Return Optuna's classes of samplers or pruners by their short names."""
    module, end = getattr(optuna, f"{kind}s"), kind.capitalize()
    names = [name for name in module.__all__ if name.endswith(end) and not name.startswith("Base")]
    return {short(name, kind): getattr(module, name) for name in names}


def short(name: str, kind: str) -> str:
    """TPESampler, tpe -> tpe; SuccessiveHalvingPruner, successive-halving -> successivehalving"""
    return name.lower().replace("_", "").replace("-", "").removesuffix(kind)


def nested(optuna: Any, key: str, value: Any) -> Any:
    return make(optuna, WITHIN[key], Method(value)) if key in WITHIN and isinstance(value, str) else value


def check_options(kind: str, name: str, cls: Any, given: Mapping[str, Any]) -> None:
    known = inspect.signature(cls).parameters
    for key in given:
        if key not in known:
            raise ValueError(f"the {kind} {name} has {no_such('option', key, known)}")
    needed = [key for key, each in known.items() if each.default is each.empty and key not in given]
    if needed:
        raise ValueError(
            f"the {kind} {name} needs --{kind}-options {' '.join(f'{key}=...' for key in needed)}"
        )
