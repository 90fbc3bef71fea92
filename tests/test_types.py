"""What mypy and pyright say about a user's program: types of units and results, and misspelt options.

A line `reveal_type(...)  # T` is of type T, a line that ends in `# error` is an error, and no other is.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from linnet.units import UNITS

ROOT = Path(__file__).parents[1]

PROGRAM = """\
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

import linnet


class Tagger(nn.Module):
    def __init__(self, as_lstm: bool = False) -> None:
        super().__init__()
        self.rnn = linnet.SRU(8, 16, num_layers=2, dropout=0.1, highway_bias=-3, bidirectional=True)
        self.flag = linnet.SRU(8, 16, as_lstm=as_lstm)

    def forward(self, x: Tensor) -> Tensor:
        y, state = self.rnn(x, lengths=[5, 4, 3])
        return y + state.sum()


def first(rnn: linnet.Recurrent, x: Tensor) -> Tensor:
    y, state = rnn(x)
    reveal_type(y)  # Tensor
    return y


def carry(rnn: linnet.SRU[tuple[Tensor, Tensor]], x: Tensor) -> Tensor:
    y, (h, c) = rnn(x)
    y, pair = rnn(x, (h, c))
    return y


tagger, x, rnn = Tagger(), torch.randn(5, 3, 8), linnet.SRU(8, 16, norm="rms")
reveal_type(tagger.rnn)  # SRU[Tensor]
reveal_type(rnn(x))  # tuple[Tensor, Tensor]
reveal_type(rnn(pack_sequence([x[:, 0]])))  # tuple[PackedSequence, Tensor]
reveal_type(tagger.flag(x))  # tuple[Tensor, Tensor | tuple[Tensor, Tensor]]
reveal_type(linnet.SRU(8, 16, as_lstm=True))  # SRU[tuple[Tensor, Tensor]]
reveal_type(linnet.LSTM(8, 16)(x, (x, x)))  # tuple[Tensor, LSTMState]
reveal_type(linnet.GRUCell(8, 16)(x[0]))  # Tensor
reveal_type(linnet.SRUCell(8, 16, norm="rms")(x[0]))  # tuple[Tensor, Tensor]
reveal_type(linnet.CfC(8, 16, mixed_memory=True)(x, timespans=x[0]))  # tuple[Tensor, CfCState]
reveal_type(linnet.SRU.from_pretrained("folder"))  # SRU[Tensor]
reveal_type(linnet.stream(rnn.eval()))  # Stream
reveal_type(linnet.stream(rnn)(x[0]))  # Tensor
reveal_type(linnet.convert(tagger, example=x))  # Report
reveal_type(linnet.quantize(tagger))  # Tagger
reveal_type(linnet.load("runs/book-sru"))  # TrainedRun
reveal_type(linnet.export_c(rnn, "folder"))  # Path
reveal_type(linnet.export_js(rnn, "folder"))  # Path
reveal_type(linnet.export_onnx(rnn, "model.onnx"))  # ONNXProgram
reveal_type(linnet.GriffinBlock(8)(x))  # tuple[Tensor, GriffinState]
reveal_type(linnet.SLSTMBlock(8)(x))  # tuple[Tensor, SLSTMBlockState]
reveal_type(linnet.CRF(5)(x, x))  # Tensor
reveal_type(linnet.quantize_integer(rnn, calibration=x)(x)[0])  # Tensor
reveal_type(linnet.freeze(tagger))  # Tagger
reveal_type(linnet.record(rnn, x))  # Recording
linnet.SRU(8, 16, drpout=0.1)  # error
linnet.SRUCell(8, 16, actvation="tanh")  # error
linnet.SRU(8, 16, activation="tan")  # error
linnet.NRU(8, 16, memory_sizes=64)  # error
linnet.NRU(8, 16, as_lstm=True)  # error
rnn(x, (x, x))  # error
carry(rnn, x)  # error
"""
EVERY_UNIT = "".join(
    f"reveal_type(linnet.{name}(8, 8))\nreveal_type(linnet.{name}(8, 8)(x))\n"
    for stack in UNITS.values()
    for name in (stack.__name__, stack.cell_class.__name__)
)
# {line: what a checker said about it}, types and errors.
Said = tuple[dict[int, str], set[int]]


def mypy(program: Path) -> Said:
    """With the settings and the cache of `make check`, which has read Linnet and torch before."""
    command = [sys.executable, "-m", "mypy", "--no-pretty", "--show-error-end", str(program)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 1, result.stdout + result.stderr
    said = re.findall(r"^.*\.py:(\d+):.*?: (note|error): (.*)$", result.stdout, re.MULTILINE)
    types = {int(n): text.partition('"')[2][:-1] for n, kind, text in said if "Revealed type" in text}
    return types, {int(n) for n, kind, _ in said if kind == "error"}


def pyright(program: Path) -> Said:
    checker = shutil.which("basedpyright", path=str(Path(sys.executable).parent)) or shutil.which("pyright")
    if checker is None:
        pytest.skip("there is no pyright: pip install basedpyright, or npm install pyright")
    settings = {"typeCheckingMode": "standard", "pythonVersion": "3.10", "extraPaths": [str(ROOT)]}
    program.with_name("pyrightconfig.json").write_text(json.dumps(settings))
    command = [checker, "--outputjson", "--pythonpath", sys.executable, "-p", str(program.parent)]
    result = subprocess.run(command, cwd=program.parent, capture_output=True, text=True, check=False)
    said = [(d["range"]["start"]["line"] + 1, d) for d in json.loads(result.stdout)["generalDiagnostics"]]
    types = {n: d["message"].split(" is ")[-1][1:-1] for n, d in said if d["severity"] == "information"}
    return types, {n for n, d in said if d["severity"] == "error"}


def short(kind: str) -> str:
    """A type without modules, and a named tuple by its name."""
    kind = re.sub(r"tuple\[[^][]*fallback=([\w.]+)\]", r"\1", kind)
    return re.sub(r"\b(\w+\.)+", "", kind)


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_type_checkers_know_units_options_and_results(checker, tmp_path: Path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM + EVERY_UNIT)
    types, errors = checker(program)
    lines = list(enumerate(PROGRAM.splitlines(), 1))
    assert errors == {n for n, line in lines if line.endswith("# error")}
    expected = {n: line.split("  # ")[1] for n, line in lines if "reveal_type" in line}
    assert {n: short(types[n]) for n in expected} == expected
    others = [kind for n, kind in types.items() if n not in expected]
    assert len(others) == 4 * len(UNITS)
    assert [kind for kind in others if "Any" in kind or "Unknown" in kind] == []
