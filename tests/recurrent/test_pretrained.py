"""save_pretrained, from_pretrained and push_to_hub, by huggingface_hub's own code."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import huggingface_hub
import huggingface_hub.hub_mixin
import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.testing import assert_close

import linnet
from linnet.models.classifier import Classifier, ClassifierConfig
from linnet.models.language import LanguageModel, LanguageModelConfig
from linnet.models.sequence import SequenceModel, SequenceModelConfig
from linnet.recurrent.sizes import sketching


def language_model() -> LanguageModel:
    return LanguageModel(9, LanguageModelConfig(unit="sru", hidden_sizes=(6, 4), embedding_size=5))


MODELS = {
    "stack": lambda: linnet.SRU(3, 4, 2, highway_bias=-1.0, bidirectional=True),
    "double": lambda: linnet.LSTM(3, hidden_size=4, peepholes=True, dtype=torch.double),
    "language": language_model,
    "classifier": lambda: Classifier(9, 3, ClassifierConfig(unit="lrn", hidden_size=4, embedding_size=4)),
    "counts": lambda: Classifier(
        9, 3, ClassifierConfig(hidden_size=4, embedding_size=4, counts="bigrams"), pairs=5
    ),
    "sequence": lambda: SequenceModel(5, 2, SequenceModelConfig(unit="nru", hidden_size=4), one_hot=True),
    "int8": lambda: linnet.quantize(language_model(), skip="softmax"),
    "int8 stack": lambda: linnet.quantize(linnet.GRU(3, 4), activations=False),
    "copy": lambda: copy.deepcopy(linnet.RAN(3, 4)),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_folder_gives_the_same_module_back(name: str, tmp_path: Path):
    model: Any = MODELS[name]()
    model.save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"README.md", "config.json", "model.safetensors"}
    other = type(model).from_pretrained(tmp_path)
    assert_close(other.state_dict(), model.state_dict(), rtol=0, atol=0)
    assert repr(other) == repr(model)
    assert not other.training


@pytest.mark.parametrize("unit", linnet.UNITS.values(), ids=list(linnet.UNITS))
def test_every_unit_says_what_it_was_built_with(unit: type[linnet.Recurrent]):
    rnn = unit(4, 4, num_layers=2, prenorm="rms")
    other = unit.from_config(json.loads(json.dumps(rnn.hub_config())), "a config")
    assert {name: t.shape for name, t in other.state_dict().items()} == {
        name: t.shape for name, t in rnn.state_dict().items()
    }


class Api:
    """The Hub, as far as huggingface_hub's mixin calls it."""

    uploads: list[dict[str, Any]] = []

    def __init__(self, token: str | None = None):
        self.token = token

    def create_repo(self, repo_id: str, **options: Any) -> Any:
        return type("Repository", (), {"repo_id": repo_id})

    def upload_folder(self, folder_path: Path, **options: Any) -> str:
        files = {path.name: path.read_bytes() for path in folder_path.iterdir()}
        self.uploads.append({"files": files, "token": self.token, **options})
        return "https://example.org/commit"


def test_a_module_is_pushed_with_its_card(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(huggingface_hub.hub_mixin, "HfApi", Api)
    Api.uploads.clear()
    url = linnet.SRU(3, 4).push_to_hub("someone/model", card="# A card\n", token="secret")
    (upload,) = Api.uploads
    assert url == "https://example.org/commit"
    assert (upload["repo_id"], upload["token"], upload["repo_type"]) == ("someone/model", "secret", "model")
    assert upload["files"]["README.md"].endswith(b"# A card\n")
    assert json.loads(upload["files"]["config.json"])["class"] == "SRU"


def test_a_module_is_downloaded_by_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    from linnet.recurrent import pretrained

    asked = []

    def download(repo_id: str, filename: str, **options: Any) -> str:
        asked.append((repo_id, filename, options["revision"]))
        return str(tmp_path / filename)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    monkeypatch.setattr(huggingface_hub.hub_mixin, "hf_hub_download", download)
    pretrained.hub_folder.cache_clear()
    rnn = linnet.LRN(3, 4)
    rnn.save_pretrained(tmp_path)
    other = linnet.LRN.from_pretrained("someone/model", revision="v1")
    assert_close(other.state_dict(), rnn.state_dict())
    assert ("someone/model", "model.safetensors", "v1") in asked
    pretrained.hub_folder.cache_clear()


# ----------------------------------------------------------------------------------------- errors


def test_a_folder_of_another_class_says_which(tmp_path: Path):
    linnet.SRU(3, 4).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"of the class SRU, and this is LRN; call SRU\.from_pretrained"):
        linnet.LRN.from_pretrained(tmp_path)


def test_weights_of_another_model_are_refused(tmp_path: Path):
    linnet.SRU(3, 4).save_pretrained(tmp_path / "one")
    linnet.SRU(3, 5).save_pretrained(tmp_path / "two")
    (tmp_path / "two" / "model.safetensors").rename(tmp_path / "one" / "model.safetensors")
    with pytest.raises(ValueError, match=r"model\.safetensors has weights of another model: Error"):
        linnet.SRU.from_pretrained(tmp_path / "one")


@pytest.mark.parametrize(
    ("config", "answer"),
    [
        ({"model_type": "bert"}, "is not a config.json of Linnet"),
        ({"linnet": 1, "class": "SRU", "arguments": {}, "changes": {"int4": {}}}, "names the change 'int4'"),
    ],
    ids=["foreign", "unknown change"],
)
def test_other_configs_are_refused(config: dict[str, Any], answer: str, tmp_path: Path):
    linnet.SRU(3, 4).save_pretrained(tmp_path)
    if "arguments" in config:
        config["arguments"] = {"input_size": 3, "hidden_size": 4}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=answer):
        linnet.SRU.from_pretrained(tmp_path)


SRU = {"linnet": 1, "class": "SRU", "changes": {}}


@pytest.mark.parametrize(
    ("config", "answer"),
    [
        ("[]", "is not a config.json of Linnet"),
        ('"SRU"', "is not a config.json of Linnet"),
        ("no JSON", "is not JSON in UTF-8"),
        ("[" * 100_000, "is not JSON in UTF-8"),
        ({**SRU, "arguments": []}, "needs the objects 'arguments' and 'changes'"),
        ({"linnet": 1, "class": "SRU"}, "needs the objects 'arguments' and 'changes'"),
        ({"linnet": 1, "arguments": {}, "changes": {}}, "of the class None"),
        ({**SRU, "arguments": {}, "changes": {"int8": []}}, "names the change 'int8'"),
        ({**SRU, "arguments": {"input_size": 3, "hidden_siz": 4}}, "describes a model that cannot be built"),
        ({**SRU, "arguments": {"device": "cpu", "input_size": 3, "hidden_size": 4}}, "the argument 'device'"),
    ],
)
def test_damaged_configs_are_refused(config: Any, answer: str, tmp_path: Path):
    linnet.SRU(3, 4).save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    with pytest.raises(ValueError, match=answer):
        linnet.SRU.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ({"hidden_size": 4, "num_layers": 1_000_000}, "num_layers of 1,000,000 layers, and there are 4 ten"),
        ({"hidden_size": 20_000}, r"has 64 weights, and the model of its config\.json needs 320,000"),
        ({"hidden_size": 10**30}, "hidden_size=1,000,0"),
        ({"hidden_size": -4}, "cannot be built"),
    ],
)
@pytest.mark.parametrize("changes", [{}, {"int8": {}}], ids=["float", "int8"])
def test_sizes_are_compared_with_the_weights_before_memory_is_allocated(
    arguments: dict[str, Any], answer: str, changes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    linnet.SRU(3, 4).save_pretrained(tmp_path)
    config = {**SRU, "arguments": {"input_size": 3, **arguments}, "changes": changes}
    (tmp_path / "config.json").write_text(json.dumps(config))
    devices, build = [], linnet.SRU.__init__

    def note_device(rnn: linnet.SRU, *given: Any, **named: Any) -> None:
        devices.append(torch.get_default_device())
        build(rnn, *given, **named)

    monkeypatch.setattr(linnet.SRU, "__init__", note_device)
    with pytest.raises(ValueError, match=answer):
        linnet.SRU.from_pretrained(tmp_path)
    assert torch.device("cpu") not in devices


class Calls(TorchFunctionMode):
    """Notes what is called of torch."""

    def __init__(self) -> None:
        super().__init__()
        self.functions: list[Any] = []

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        self.functions.append(function)
        return function(*arguments, **(named or {}))


@pytest.mark.parametrize("fill", [torch.nn.init.normal_, torch.nn.init.xavier_normal_, torch.Tensor.normal_])
def test_a_sketch_draws_no_normal_numbers(fill: Any):
    """On the device "meta", torch imports its compiler for them, half a second of CPU."""
    with Calls() as calls, sketching():
        weight = torch.nn.Embedding(3, 4).weight
        with torch.no_grad():
            assert fill(weight) is weight
    assert (weight.shape, weight.is_meta) == ((3, 4), True)
    assert not {torch.Tensor.normal_, torch.nn.init.normal_} & set(calls.functions)


def test_an_empty_folder_is_named(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"config\.json does not exist; save_pretrained writes it"):
        linnet.SRU.from_pretrained(tmp_path)


def test_importing_linnet_brings_no_hub():
    code = "import sys, linnet; print('huggingface_hub' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
