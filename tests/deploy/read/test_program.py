"""Programs of torch.export: read as JSON and arrays, equal to what torch computes."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import linnet
from linnet import UnreadableModel

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*were assigned during export"),
    pytest.mark.filterwarnings("ignore:LSTM with projections"),
]


class Detector(nn.Module):
    """Convolution, norm, two layers of LSTM, a cell and a head; sizes depend on the batch."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv1d(4, 8, 3, padding=1), nn.BatchNorm1d(8)
        self.rnn = nn.LSTM(8, 6, num_layers=2, batch_first=True, bidirectional=True, proj_size=3)
        self.gru = nn.GRU(6, 6, bias=False, batch_first=True)
        self.head, self.cell = nn.Linear(6, 3), nn.GRUCell(3, 3)
        self.register_buffer("scale", torch.arange(3.0))

    def forward(self, x, h, c):
        y = torch.relu(self.norm(self.conv(x))).transpose(1, 2)
        y, (h, c) = self.rnn(y, (h, c))
        y = self.gru(y)[0][:, -1]
        z = self.head(y) * self.scale
        z = torch.cat([z, z + 1], 1).reshape(x.shape[0], 2, 3).mean(1)
        return torch.softmax(self.cell(z, z), -1), h, c


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> tuple[nn.Module, Path]:
    torch.manual_seed(0)
    model = Detector().eval()
    batch = torch.export.Dim("batch", min=1, max=64)
    shapes = ({0: batch}, {1: batch}, {1: batch})
    exported = torch.export.export(model, example(2), dynamic_shapes=shapes)
    path = tmp_path_factory.mktemp("program") / "model.pt2"
    torch.export.save(exported, path)
    return model, path


def example(batch: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(batch, 4, 10), torch.randn(4, batch, 3), torch.randn(4, batch, 6)


def changed(path: Path, folder: Path, change: Any) -> Path:
    """A copy of the archive with one entry changed: change(name, content) -> content."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(folder / "changed.pt2", "w") as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
    return folder / "changed.pt2"


def in_json(part: str, change: Any) -> Any:
    """Change the JSON of the entry whose name ends with `part`."""

    def run(name: str, content: bytes) -> bytes:
        if not name.endswith(part):
            return content
        value = json.loads(content)
        change(value)
        return json.dumps(value).encode()

    return run


def test_a_program_computes_what_torch_computes(program: tuple[nn.Module, Path]):
    model, path = program
    made = linnet.read_model(path)
    assert made.input_names == ["x", "h", "c"]
    assert {type(each) for each in made.modules()} >= {linnet.LSTM, linnet.GRU}
    assert {"conv.weight", "norm.running_mean", "head.bias", "scale"} <= set(made.state_dict())
    with torch.no_grad():
        for batch in (2, 5, 2):
            inputs = example(batch)
            torch.testing.assert_close(made(*inputs), model(*inputs), rtol=1e-5, atol=1e-6)


def test_no_function_outside_the_list_is_looked_up(program: tuple[nn.Module, Path], tmp_path: Path):
    def attack(value: Any) -> None:
        value["graph_module"]["graph"]["nodes"][2]["target"] = "torch.os.system"

    with pytest.raises(UnreadableModel, match=r"does not read: torch\.os\.system \(1\)"):
        linnet.read_model(changed(program[1], tmp_path, in_json("models/model.json", attack)))


def test_a_pickled_weight_is_refused(program: tuple[nn.Module, Path], tmp_path: Path):
    def attack(value: Any) -> None:
        value["config"]["head.weight"]["use_pickle"] = True

    with pytest.raises(UnreadableModel, match=r"'head\.weight' is a pickle"):
        linnet.read_model(changed(program[1], tmp_path, in_json("weights_config.json", attack)))


@pytest.mark.parametrize(
    "meta",
    [
        {"sizes": [{"as_int": 2**40}, {"as_int": 6}]},
        {"sizes": [{"as_int": -3}, {"as_int": 6}]},
        {"strides": [{"as_int": 2**40}, {"as_int": 1}]},
        {"storage_offset": {"as_int": 2}},
        {"storage_offset": {"as_int": -1}},
        {"dtype": 99},
        {"sizes": None},
    ],
)
def test_a_weight_beyond_its_numbers_is_refused(meta: dict, program: tuple[nn.Module, Path], tmp_path: Path):
    def attack(value: Any) -> None:
        value["config"]["head.weight"]["tensor_meta"].update(meta)

    with pytest.raises(UnreadableModel):
        linnet.read_model(changed(program[1], tmp_path, in_json("weights_config.json", attack)))


def test_a_model_in_training_mode_is_refused(tmp_path: Path):
    exported = torch.export.export(nn.Sequential(nn.Dropout(0.5)).train(), (torch.randn(2, 3),))
    torch.export.save(exported, tmp_path / "model.pt2")
    with pytest.raises(UnreadableModel, match=r"is in training mode; export the model after model\.eval\(\)"):
        linnet.read_model(tmp_path / "model.pt2")(torch.randn(2, 3))
