"""A trained run as a folder for the Hugging Face Hub: the model, the files of its task and a model card.

The card is written from the record of the run: its data, its settings and its figures.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from linnet.base.project import REPOSITORY, install_anywhere
from linnet.base.tables import short
from linnet.deploy.quantize import quantize
from linnet.deploy.source.folder import new_folder
from linnet.recurrent.pretrained import Pretrained
from linnet.runs.load import TrainedRun
from linnet.runs.records import read_result

# Settings of a run that say where something is on the machine that trained it.
LOCAL = ("path", "data_dir", "valid_path", "test_path", "vectors", "device", "threads", "start_from")
# Settings that are worth a line even if they are the default.
IMPORTANT = ("corpus", "set", "unit", "hidden_size", "num_layers", "seed", "lr", "optimiser")
PIPELINES = {"lm": "text-generation", "classify": "text-classification", "tag": "token-classification"}


def export_hub(trained: TrainedRun, folder: str | Path, *, int8: bool = False) -> Path:
    """Write a folder with model.safetensors, config.json, README.md (the card) and the files of the task."""
    model: Any = quantize(trained.model) if int8 else trained.model
    if not isinstance(model, Pretrained):
        raise TypeError(f"{type(model).__name__} has no save_pretrained; derive it from linnet's Encoder")
    folder = Path(folder)
    with new_folder(folder, {"target": "hub", "int8": int8}) as work:
        for name, content in trained.task.assets().items():
            (work / name).write_bytes(content)
        model.save_pretrained(work, card=model_card(trained, model, int8))
    return folder


def model_card(trained: TrainedRun, model: Pretrained, int8: bool = False) -> str:
    """The text of README.md."""
    config, result = trained.config, read_result(trained.folder) or {}
    sections = [
        front_matter(trained),
        f"# {title(trained)}\n\n{about(trained, model, int8)}",
        f"## How to use it\n\n{usage(trained, model)}",
        f"## Figures\n\n{figures(result, int8)}" if result else "",
        f"## Data\n\n{settings_table(config.data)}",
        f"## Model\n\n{settings_table(config.model)}",
        f"## Training\n\n{settings_table(config.loop)}",
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def title(trained: TrainedRun) -> str:
    unit = getattr(trained.config.model, "unit", type(trained.model).__name__)
    return f"{unit.upper()}, {trained.config.task}"


def front_matter(trained: TrainedRun) -> str:
    unit = getattr(trained.config.model, "unit", "recurrent")
    tags = ["linnet", "recurrent-neural-network", unit, trained.config.task]
    lines = ["library_name: linnet"]
    if trained.config.task in PIPELINES:
        lines.append(f"pipeline_tag: {PIPELINES[trained.config.task]}")
    return "\n".join(["---", *lines, "tags:", *(f"- {tag}" for tag in dict.fromkeys(tags)), "---"])


def about(trained: TrainedRun, model: Pretrained, int8: bool) -> str:
    count = sum(weight.numel() for weight in trained.model.parameters())
    what = "int8 weights, with one scale for each row" if int8 else "float32"
    return (
        f"A `{type(model).__name__}` of [Linnet]({REPOSITORY}), light recurrent "
        f"networks for PyTorch: {count:,} parameters, {what}, after {trained.step:,} updates."
    )


def usage(trained: TrainedRun, model: Pretrained) -> str:
    kind = type(model)
    lines = [
        f"from {kind.__module__} import {kind.__name__}",
        "",
        f'model = {kind.__name__}.from_pretrained("this folder, or the name of the repository")',
    ]
    if trained.config.task == "lm":
        lines[1:1] = [
            "from linnet.data.vocabulary import Vocabulary",
            "from linnet.models.generate import generate_texts",
        ]
        lines += [
            'vocabulary = Vocabulary.load("this folder/vocabulary.json")',
            'print(generate_texts(model, vocabulary, ["The"], tokens=30)[0])',
        ]
    return "\n".join(["```python", *lines, "```", "", f"`{install_anywhere('hub')}`"])


def figures(result: Mapping[str, Any], int8: bool) -> str:
    names = [name for name in result["test"] if name in result["valid"] and name != "tokens"]
    lines = ["| | validation | test |", "| --- | --- | --- |"]
    lines += [
        f"| {name} | {short(result['valid'][name], 5)} | {short(result['test'][name], 5)} |" for name in names
    ]
    note = "\n\nThese are the figures of the model in float32." if int8 else ""
    return "\n".join(lines) + note


def settings_table(settings: Any) -> str:
    rows = [f"| {name} | {value} |" for name, value in changed(settings)]
    return "\n".join(["| setting | value |", "| --- | --- |", *rows]) if rows else "The defaults."


def changed(settings: Any) -> Iterator[tuple[str, str]]:
    """The settings that are not the default, without those of the machine."""
    for each in dataclasses.fields(settings):
        value = getattr(settings, each.name)
        default = each.default if each.default_factory is dataclasses.MISSING else each.default_factory()
        wanted = each.name in IMPORTANT or value != default
        if each.name not in LOCAL and value is not None and wanted:
            yield each.name, f"`{value}`"
