"""Hugging Face's loaders build a module without memory, give it its weights later, or for each call anew."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from accelerate import cpu_offload, init_empty_weights
from helpers import randn, same
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel

import linnet
from tools.variants import FORMS

over_units = pytest.mark.parametrize("unit", FORMS.values(), ids=lambda unit: unit.__name__)


def build(unit: type[linnet.Recurrent]) -> linnet.Recurrent:
    return unit(4, 16, num_layers=2, bidirectional=True)


class Config(PretrainedConfig):
    model_type = "stack"

    def __init__(self, unit: str = "sru", **options):
        super().__init__(**options)
        self.unit = unit


class Model(PreTrainedModel):
    config_class = Config

    def __init__(self, config: Config):
        super().__init__(config)
        self.rnn = build(linnet.UNITS[config.unit])
        self.post_init()

    def _init_weights(self, module: torch.nn.Module) -> None:
        """They come from the file."""

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(x)[0]


@over_units
def test_from_pretrained_gives_back_what_was_saved(unit, tmp_path: Path):
    model, x = Model(Config(unit.__name__.lower())).eval(), randn(5, 3, 4).float()
    model.save_pretrained(tmp_path)
    same(Model.from_pretrained(tmp_path).eval()(x), model(x), atol=1e-5)


@over_units
def test_weights_that_accelerate_brings_for_each_call_are_used(unit):
    rnn, x = build(unit).eval(), randn(5, 3, 4).float()
    offloaded = copy.deepcopy(rnn)
    cpu_offload(offloaded, execution_device=torch.device("cpu"))
    assert all(parameter.is_meta for parameter in offloaded.parameters())
    with torch.no_grad():
        same(offloaded(x)[0], rnn(x)[0], atol=1e-5)


def test_empty_weights_are_an_error_until_they_are_loaded():
    with init_empty_weights():
        rnn = build(linnet.SRU)
    with pytest.raises(ValueError, match=r"on meta, without values; load them with load_state_dict"):
        rnn(torch.randn(5, 3, 4))
    full = build(linnet.SRU)
    rnn.load_state_dict(full.state_dict(), assign=True)
    x = torch.randn(5, 3, 4)
    same(rnn(x)[0], full(x)[0], atol=1e-5)
