"""Modules as folders that the Hugging Face Hub understands, by its own package huggingface_hub.

    rnn.save_pretrained("folder")
    rnn = linnet.SRU.from_pretrained("folder")           # or the name of a repository, "someone/model"
    rnn.push_to_hub("someone/model")

A folder has model.safetensors, config.json with the arguments of the constructor, and a card, README.md.
Nothing in it is executed. huggingface_hub and safetensors are imported when one of these methods is called.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import typing
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from linnet.base.project import REPOSITORY, advice
from linnet.recurrent.sizes import refuse_missing_weights, sketching, too_large

if TYPE_CHECKING:
    from typing_extensions import Self

FORMAT = 1
CONFIG, WEIGHTS = "config.json", "model.safetensors"
LARGEST_CONFIG = 2**24  # bytes
# Arguments that say where a module is; a file of weights says which dtype they have.
PLACES = ("device", "dtype")
# What can be done to a module after its constructor, by name: it takes the module and named options.
CHANGES: dict[str, Callable[..., Any]] = {}

Model = TypeVar("Model", bound="Pretrained")


class Pretrained(nn.Module):
    """A module that can be saved with what its constructor was given."""

    arguments_given: dict[str, Any]
    # What was done to it after its constructor: {name in CHANGES: options}.
    changes: dict[str, dict[str, Any]]

    def __new__(cls, *arguments: Any, **named: Any) -> Self:
        made = super().__new__(cls)
        # A copy or a pickle is made without arguments, and gets those of the original with its attributes.
        if arguments or named:
            signature = inspect.signature(cls)
            if all(name in signature.parameters or takes_more(signature) for name in named):
                try:
                    given = signature.bind(*arguments, **named).arguments
                except TypeError:  # __init__ raises it again, with the line of the call
                    given = {}
                made.__dict__["arguments_given"] = without_places(given)
        return made

    def save_pretrained(self, save_directory: str | Path, *, card: str | None = None, **options: Any) -> Any:
        """Write the module to a folder; the options are those of huggingface_hub's save_pretrained.

        card   the text of README.md (default: a short one)
        """
        return hub_folder()(self, card).save_pretrained(save_directory, **options)

    def push_to_hub(self, repo_id: str, *, card: str | None = None, **options: Any) -> str:
        """Upload the module to a repository; the options are those of huggingface_hub's push_to_hub."""
        return hub_folder()(self, card).push_to_hub(repo_id, **options)

    @classmethod
    def from_pretrained(cls: type[Model], name_or_folder: str | Path, **options: Any) -> Model:
        """Return the module of a folder or of a repository, in evaluation mode.

        The options are those of huggingface_hub's from_pretrained, such as revision and cache_dir.
        """
        return hub_folder().from_pretrained(name_or_folder, model_class=cls, **options)

    def hub_config(self) -> dict[str, Any]:
        """The contents of config.json."""
        given = self.__dict__.get("arguments_given")
        if given is None:
            raise TypeError(
                f"this {type(self).__name__} does not know the arguments of its constructor, because it was "
                "not made by calling its class; save its state_dict instead"
            )
        try:
            arguments = {name: plain(name, value) for name, value in given.items()}
        except TypeError as error:
            raise TypeError(f"{type(self).__name__} cannot be saved with its arguments: {error}") from None
        return {
            "linnet": FORMAT,
            "class": type(self).__name__,
            "arguments": arguments,
            "changes": self.__dict__.get("changes", {}),
        }

    @classmethod
    def from_config(cls: type[Model], config: Mapping[str, Any], where: str) -> Model:
        """Build the module that a config.json describes, without its weights."""
        check_config(config, where, cls.__name__)
        kinds = typing.get_type_hints(cls.__init__)
        try:
            made: Any = cls(
                **{name: read(value, kinds.get(name)) for name, value in config["arguments"].items()}
            )
            for name, options in config["changes"].items():
                made = CHANGES[name](made, **options)
        except (TypeError, ValueError, OverflowError, RuntimeError) as error:
            raise ValueError(f"{where} describes a model that cannot be built: {error}") from None
        return made

    @classmethod
    def from_weights(
        cls: type[Model], config: Any, where: str, weights: Mapping[str, torch.Tensor], file: str
    ) -> Model:
        """Build the module of a config.json with its weights.

        Memory is allocated only when the weights are known to fit: the config may be a stranger's, of any
        size.
        """
        check_config(config, where, cls.__name__)
        if wrong := too_large(config["arguments"], weights):
            raise ValueError(f"{where} has {wrong}")
        with sketching():
            # What is done later, such as rounding, needs numbers; it does not change how many there are.
            refuse_missing_weights(file, cls.from_config({**config, "changes": {}}, where), weights)
        model = cls.from_config(config, where)
        load_weights(model, weights, file)
        return model.eval()


def check_config(config: Any, where: str, name: str) -> None:
    """Raise unless a config.json describes a module of the class `name`."""
    if not isinstance(config, Mapping) or config.get("linnet") != FORMAT:
        raise ValueError(f"{where} is not a config.json of Linnet, or one of a newer version")
    arguments, changes = config.get("arguments"), config.get("changes")
    if not isinstance(arguments, Mapping) or not isinstance(changes, Mapping):
        raise ValueError(f"{where} needs the objects 'arguments' and 'changes'; save_pretrained writes them")
    if config.get("class") != name:
        raise ValueError(
            f"{where} describes a model of the class {config.get('class')}, and this is {name}; "
            f"call {config.get('class')}.from_pretrained"
        )
    for place in set(PLACES) & arguments.keys():
        raise ValueError(f"{where} has the argument {place!r}; a file of weights has no device or dtype")
    for change, options in changes.items():
        if change not in CHANGES or not isinstance(options, Mapping):
            raise ValueError(f"{where} names the change {change!r}; this version knows {', '.join(CHANGES)}")


def takes_more(signature: inspect.Signature) -> bool:
    return any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())


def without_places(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by name, with those of **options among them, and without device and dtype."""
    flat: dict[str, Any] = {}
    for name, value in given.items():
        flat |= value if name == "unit_options" and isinstance(value, dict) else {name: value}
    return {name: value for name, value in flat.items() if name not in PLACES}


def plain(name: str, value: Any) -> Any:
    """A value as JSON has it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain(name, dataclasses.asdict(value))
    if isinstance(value, Mapping):
        return {str(key): plain(name, each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(name, each) for each in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{name}={value!r} is no number or text")


def read(value: Any, kind: Any) -> Any:
    """A value of JSON as an argument: a dataclass if that is what the constructor takes."""
    made = next(filter(dataclasses.is_dataclass, (kind, *typing.get_args(kind))), None)
    if made is not None and isinstance(value, dict):
        return made(**{name: read(each, None) for name, each in value.items()})  # type: ignore[operator]
    return tuple(read(each, None) for each in value) if isinstance(value, list) else value


def default_card(model: Pretrained) -> str:
    name = type(model).__name__
    return f"""---
library_name: linnet
tags:
- recurrent-neural-network
---

# {name}

A model of [Linnet]({REPOSITORY}), light recurrent networks for PyTorch.

```python
model = {name}.from_pretrained("this folder, or the name of the repository")
```

```text
{model}
```
"""


@cache
def hub_folder() -> Any:
    """The mixin of huggingface_hub around a module; to inherit it, linnet would have to import it."""
    try:
        from huggingface_hub import ModelCard, ModelHubMixin, hf_hub_download
        from safetensors.torch import load_file, save
    except ImportError as error:
        raise ImportError(f"saving and loading for the Hub needs {error.name}: {advice('hub')}") from None

    class HubFolder(ModelHubMixin, library_name="linnet"):
        def __init__(self, model: Pretrained, card: str | None):
            self.model, self.card = model, card

        def _save_pretrained(self, save_directory: Path) -> None:
            config = json.dumps(self.model.hub_config(), indent=2)
            weights = {
                name: t.detach().cpu().contiguous().clone() for name, t in self.model.state_dict().items()
            }
            (save_directory / WEIGHTS).write_bytes(save(weights, metadata={"format": "pt"}))
            (save_directory / CONFIG).write_text(config, encoding="utf-8")

        def generate_model_card(self, *arguments: Any, **named: Any) -> Any:
            return ModelCard(default_card(self.model) if self.card is None else self.card)

        @classmethod
        def from_pretrained(  # type: ignore[override]
            cls, name_or_folder: str | Path, model_class: type[Pretrained], **options: Any
        ) -> Any:
            """Not that of the mixin, which takes arguments from config.json before they are checked."""

            def file(name: str) -> Path:
                if Path(name_or_folder).is_dir():
                    return Path(name_or_folder) / name
                return Path(hf_hub_download(repo_id=str(name_or_folder), filename=name, **options))

            path = file(CONFIG)
            config, weights = read_config(path), file(WEIGHTS)
            return model_class.from_weights(config, str(path), load_file(weights), str(weights))

    return HubFolder


def read_config(path: Path) -> Any:
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; save_pretrained writes it")
    if path.stat().st_size > LARGEST_CONFIG:
        raise ValueError(
            f"{path} has {path.stat().st_size:,} bytes; a config.json has at most {LARGEST_CONFIG:,}"
        )
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON in UTF-8: {error}") from None


def load_weights(model: nn.Module, weights: Mapping[str, torch.Tensor], where: str) -> None:
    """Load the weights in their own dtype."""
    kinds = {tensor.dtype for name, tensor in weights.items() if tensor.is_floating_point()}
    if len(kinds) == 1:
        model.to(next(iter(kinds)))
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(f"{where} has weights of another model: {error}") from None
