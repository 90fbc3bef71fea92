"""linnet convert: what is in a file, and the model of it as a step with states."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

import linnet
from linnet.cli import convert, main
from linnet.deploy.read.states import StatefulStep, example_of, find_states, stem
from tools.onnx_cases import CASES, node, recurrent
from tools.onnx_cases import model as model_proto


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "layer.onnx").write_bytes(recurrent("LSTM", states=True).SerializeToString())
    return tmp_path / "layer.onnx"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        *(("h", "hn"), ("h0", "hn"), ("state", "stateN"), ("h_in", "h_out"), ("state_h", "final_h")),
        *(("before.0.c", "state.0.c"), ("prev_state", "next_state"), ("hidden", "new_hidden")),
    ],
)
def test_names_of_a_state_before_and_after_have_one_stem(before: str, after: str):
    assert stem(before) == stem(after)


@pytest.mark.parametrize(("before", "after"), [("h", "cn"), ("input", "output"), ("x", "y"), ("h_0", "h_1")])
def test_other_names_have_others(before: str, after: str):
    assert stem(before) != stem(after)


def test_a_step_keeps_the_states_that_names_and_shapes_tell(path: Path):
    model = linnet.read_model(path)
    example = example_of(model, {})
    assert find_states(model, example) == {"h": "hn", "c": "cn"}
    step = StatefulStep(model, {"h": "hn", "c": "cn"})
    x, state = step.arguments(example)
    y, state = step(x + 1, state)
    y, (h, c) = step(x, state)
    again, hn, cn = model(x, *model(x + 1, *step.arguments(example)[1])[1:])
    assert all(torch.equal(a, b) for a, b in ((y, again), (h, hn), (c, cn)))


def test_names_alone_are_no_state(tmp_path: Path):
    """An output that is twice as long as the input cannot replace it."""
    nodes = [node("Concat", ["h", "h"], ["hn"], axis=0), node("Neg", ["x"], ["y"])]
    (tmp_path / "model.onnx").write_bytes(
        model_proto(nodes, {"x": (2,), "h": (2,)}, ["y", "hn"]).SerializeToString()
    )
    model = linnet.read_model(tmp_path / "model.onnx")
    assert find_states(model, example_of(model, {})) == {}


def test_states_can_be_named(path: Path):
    model = linnet.read_model(path)
    example = example_of(model, {})
    assert find_states(model, example, {"h": "cn"}) == {"h": "cn"}
    with pytest.raises(ValueError, match="no output 'hnn'; did you mean 'hn'"):
        find_states(model, example, {"h": "hnn"})
    with pytest.raises(ValueError, match=r"x has the shape \(5, 3, 4\) and hn \(1, 3, 6\)"):
        find_states(model, example, {"x": "hn"})


def test_the_command_shows_layers_and_inputs(path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["convert", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "linnet.LSTM(4, 6)" in shown
    assert "input x: float32 5x3x4" in shown
    assert "outputs: y, hn, cn" in shown


def test_a_file_that_cannot_be_read_is_an_error_of_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "model.onnx").write_bytes(b"no model")
    assert main(["convert", str(tmp_path / "model.onnx")]) == 1
    assert main(["convert", str(tmp_path / "none.onnx")]) == 1
    assert capsys.readouterr().err.count("linnet: ") == 2


def test_the_file_as_onnx_with_one_branch(tmp_path: Path):
    """What is written has no condition, and computes the same."""
    proto = CASES["branches"]()
    path, out = tmp_path / "branches.onnx", tmp_path / "out"
    path.write_bytes(proto.SerializeToString())
    assert main(["convert", str(path), "--set", "rate=16000", "--to", "onnx", "--out", str(out)]) == 0
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    old, new = onnxruntime.InferenceSession(path), onnxruntime.InferenceSession(out / "model.onnx")
    (expected,) = old.run(None, {"x": x, "rate": np.array(16000)})
    (found,) = new.run(None, {new.get_inputs()[0].name: x})
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_exports_get_the_step_and_its_example(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen = {}

    def export(step, folder, **given):
        seen.update(step=step, **given)
        folder.mkdir()
        return folder

    monkeypatch.setitem(convert.TARGETS, "c", export)
    words = ["convert", str(path), "--to", "c", "--out", str(tmp_path / "c"), "--int8", "--name", "lstm"]
    assert main([*words, "--state", "h=hn", "--state", "c=cn"]) == 0
    assert seen["int8"] is True
    assert seen["name"] == "lstm"
    x, (h, c) = seen["example"]
    assert [tuple(each.shape) for each in (x, h, c)] == [(5, 3, 4), (1, 3, 6), (1, 3, 6)]
    assert seen["step"](x, (h, c))[1][0].shape == h.shape


def test_shapes_that_do_not_fit_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    proto = recurrent("GRU", states=True)
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "batch"
    (tmp_path / "gru.onnx").write_bytes(proto.SerializeToString())
    assert main(["convert", str(tmp_path / "gru.onnx"), "--to", "c"]) == 1
    assert "(the inputs were x=5x1x4, h=1x3x6; --shape gives others)" in capsys.readouterr().err


def test_a_file_becomes_c(tmp_path: Path):
    proto = recurrent("GRU", states=True)
    for each, lengths in zip(proto.graph.input, ((1, 1, 4), (1, 1, 6)), strict=True):
        for dim, length in zip(each.type.tensor_type.shape.dim, lengths, strict=True):
            dim.dim_value = length
    (tmp_path / "gru.onnx").write_bytes(proto.SerializeToString())
    assert main(["convert", str(tmp_path / "gru.onnx"), "--to", "c"]) == 0
    assert (tmp_path / "gru" / "c" / "model.c").is_file()
