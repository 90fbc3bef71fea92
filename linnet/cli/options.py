"""The fields of a run as options of the command line, and back."""

from __future__ import annotations

import argparse
import dataclasses
import json
import types
import typing
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from linnet.cli.parser import at_least_one, path_name
from linnet.launch.launchers import IN_THIS_PROCESS, KNOWN, check_launcher
from linnet.tasks import TASKS


def add_task(command: Any, default: str = "lm") -> str:
    """Add the task, the first word of the command, and return it: the other options depend on it."""
    first = getattr(command, "first_word", None)
    task = first if isinstance(first, str) and first in TASKS else default
    command.add_argument(
        "task", nargs="?", choices=list(TASKS), default=default, metavar="TASK", help=", ".join(TASKS)
    )
    command.set_defaults(filled_for=task)
    return task


def check_task_is_first(options: argparse.Namespace) -> None:
    if options.task != options.filled_for:
        raise ValueError(f"the task comes first: linnet {options.command} {options.task} ...")


def add_sources(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("--recipe", metavar="NAME", help="use a paper's settings as defaults (see `linnet list recipes`)")
    add("--config", type=path_name, metavar="JSON", help="use the config.json of another run as defaults")


def add_checkpoint(command: argparse.ArgumentParser) -> None:
    """Add the option that selects the weights of a run."""
    command.add_argument("--checkpoint", choices=("best", "last"), default="best", help="(best)")


def add_cross_validation(command: argparse.ArgumentParser, task: str, text: str) -> None:
    """Add --folds, the runs of a cross-validation, unless the data of a task has an option of this name."""
    command.set_defaults(cross_validation=0)
    if not any(each.name == "folds" for each in dataclasses.fields(TASKS[task].Data)):
        command.add_argument("--folds", type=at_least_one, dest="cross_validation", metavar="K", help=text)


def add_launcher(command: Any) -> None:
    """Add --launcher, what makes several runs at the same time."""
    command.add_argument(
        "--launcher",
        type=launcher_name,
        default=IN_THIS_PROCESS,
        metavar="NAME",
        help=f"make several runs at the same time: {KNOWN} ({IN_THIS_PROCESS}: one after the other)",
    )


def launcher_name(text: str) -> str:
    try:
        check_launcher(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


COMMON = (
    *("corpus", "set", "path", "direction", "source", "time", "target", "label", "value", "group"),
    *("known", "horizon", "season", "level", "span", "images"),
    *("form", "unit", "hidden_size", "num_layers", "bidirectional"),
    *(
        "batch",
        "tokens",
        "length",
        "minutes",
        "epochs",
        "steps",
        "optimiser",
        "lr",
        "clip",
        "seed",
        "device",
        "threads",
    ),
)
"""The options that most runs set: help shows those that a task has before all others."""


def add_run_options(
    parser: argparse.ArgumentParser,
    task: str,
    without: Container[str] = (),
    start: Mapping[str, Any] | None = None,
) -> None:
    """Add an option for every field of a run; an option that is not given is absent from what is parsed.

    start    settings that the command begins with: help shows them as the defaults
    """
    from linnet.runs.config import RunConfig, options, override, parts

    usual = override(RunConfig(task=task), start or {})
    known = [each for each in options(task) if each[1].name not in without]
    titles = {part: (f"{part} options", cls.__doc__) for part, cls in parts(task).items()}
    first = {"common": ("common options", f"{FIRST} {TASKS[task].defaults_note}".strip())}
    groups = {part: parser.add_argument_group(*title) for part, title in {**first, **titles}.items()}
    for part, field, hint in sorted(known, key=by_use):
        group = groups["common" if field.name in COMMON else part]
        add_option(group, field, hint, getattr(getattr(usual, part), field.name))
    parser.further = [group for part, group in groups.items() if part not in first]  # type: ignore[attr-defined]
    short_usage(parser)


FIRST = "Defaults are in parentheses; --recipe and --config replace them."


def by_use(option: tuple[str, dataclasses.Field, Any]) -> int:
    """Common options in their order, then all others as they come."""
    name = option[1].name
    return COMMON.index(name) if name in COMMON else len(COMMON)


def short_usage(parser: argparse.ArgumentParser) -> None:
    """`linnet train lm [options]`: a list of eighty options helps nobody."""
    names = [(str(action.metavar), action.nargs) for action in parser._get_positional_actions()]
    words = [f"[{name}]" if count == "?" else name for name, count in names]
    parser.usage = " ".join(["%(prog)s", *words, "[options]"])


def add_option(group: Any, field: dataclasses.Field, hint: Any, default: Any = dataclasses.MISSING) -> None:
    flag = "--" + field.name.replace("_", "-")
    default = field.default if default is dataclasses.MISSING else default
    text = (field.metadata.get("help", "") + shown_default(default)).replace("%", "%%")
    group.add_argument(flag, dest=field.name, default=argparse.SUPPRESS, help=text, **reader(field, hint))


def add_dataclass(command: argparse.ArgumentParser, cls: Any) -> None:
    """Add an option for every field of a dataclass."""
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        add_option(command, field, hints[field.name])


def shown_default(default: Any) -> str:
    if default in (None, "", (), {}, dataclasses.MISSING):
        return ""
    if isinstance(default, bool):
        return " (yes)" if default else " (no)"
    words = " ".join(map(str, default)) if isinstance(default, tuple) else default
    return f" ({words})"


def reader(field: dataclasses.Field, hint: Any) -> dict[str, Any]:
    """How argparse reads a value of this type."""
    inner = [each for each in typing.get_args(hint) if each is not type(None)]
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return reader(field, inner[0])
    if hint is bool:
        return {"action": argparse.BooleanOptionalAction}
    if typing.get_origin(hint) is dict or hint is dict:
        return {"nargs": "+", "type": pair, "metavar": "NAME=VALUE"}
    choices = field.metadata.get("choices") or None
    if typing.get_origin(hint) is tuple:
        return {"nargs": "+", "type": inner[0], "choices": choices, "metavar": None if choices else "N"}
    return {"type": hint, "choices": choices, "metavar": None if choices else hint.__name__.upper()}


def pair(text: str) -> tuple[str, Any]:
    """alpha=0.9"""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, like alpha=0.9; got {text!r}")
    return name, parsed(value)


def parsed(value: str) -> Any:
    try:
        return json.loads(value.lower() if value in ("True", "False", "None") else value)
    except json.JSONDecodeError:
        return value


def given_options(found: argparse.Namespace, task: str) -> dict[str, Any]:
    """The fields of a run that were given, by name."""
    from linnet.runs.config import options

    given = {
        field.name: getattr(found, field.name) for _, field, _ in options(task) if hasattr(found, field.name)
    }
    return {name: dict(v) if name == "unit_options" else v for name, v in given.items()}


def run_config(found: argparse.Namespace, task: str, first: Mapping[str, Any] | None = None) -> Any:
    """The run that was asked for: defaults, then a recipe, a file or another run, then the options."""
    from linnet.runs.config import RunConfig, override
    from linnet.train.recipes import recipe

    given, plain = given_options(found, task), RunConfig(task=task)
    config = override(plain, {**TASKS[task].defaults_with(given), **(first or {})})
    if getattr(found, "config", None):
        config = settings_in(Path(found.config))
        if config.task != task:
            raise ValueError(f"{found.config} has the settings of a run of {config.task}, and this is {task}")
    if getattr(found, "recipe", None):
        base = config if getattr(found, "config", None) else plain
        config = override(base, recipe(found.recipe, task).settings)
    return changed(config, given)


def settings_in(path: Path) -> Any:
    from linnet.runs.config import override
    from linnet.runs.errors import Damaged
    from linnet.runs.records import config_from
    from linnet.runs.untrusted import SMALL, parse_json

    try:
        with open(path, "rb") as file:
            config = config_from(path, parse_json(path, file.read(SMALL)))
            # The store of another run is not that of this one.
            return override(config, {"store": "", "store_checkpoints": False})
    except (OSError, Damaged) as error:
        raise ValueError(f"--config needs the config.json of a run; {path} is not one: {error}") from None


def changed(config: Any, given: dict[str, Any]) -> Any:
    """Return the run with the options that were given, and with what follows from those that are new.

    Options of a unit are added to those of the recipe, unless they are of another unit.
    """
    from linnet.runs.config import current, override

    new = {name: value for name, value in given.items() if value != current(config, name)}
    if hasattr(config.model, "unit_options"):
        kept = {} if "unit" in new else config.model.unit_options
        given = {**given, "unit_options": {**kept, **given.get("unit_options", {})}}
    return override(config, {**TASKS[config.task].implied(new), **given})
