"""linnet export: a trained run in another language."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

import linnet
from linnet.cli import main
from linnet.cli.export import classifier_example
from linnet.models.classifier import Classifier, ClassifierConfig
from linnet.models.generate import generate
from linnet.runs.records import read_result
from tools.run_steps import CC, STRICT, checked


@pytest.fixture
def run(small_language_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small_language_run, tmp_path / "run"))


def test_a_language_model_comes_with_its_vocabulary(run: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["export", str(run), "--to", "c"]) == 0
    folder = run / "export" / "c"
    assert str(folder) in capsys.readouterr().out
    assert '{1, "l", 0},' in (folder / "main.c").read_text()
    assert main(["export", str(run), "--to", "js", "--out", str(run / "web")]) == 0
    assert 'vocabulary = [" ", "' in (run / "web" / "model.js").read_text()


@pytest.mark.parametrize("options", [("c",), ("c", "--int8"), ("js",)], ids=" ".join)
def test_an_export_has_as_many_parameters_as_the_run(run: Path, options: tuple[str, ...]):
    assert main(["export", str(run), "--to", *options, "--out", str(run / "out")]) == 0
    result = read_result(run)
    assert result is not None
    assert f"{result['parameters']:,} parameters" in (run / "out" / "README.md").read_text()


@pytest.mark.skipif(CC is None, reason="there is no C compiler")
def test_its_program_continues_a_text(run: Path):
    assert main(["export", str(run), "--to", "c", "--weights", "file"]) == 0
    folder = run / "export" / "c"
    checked([str(CC), *STRICT, "model.c", "main.c", "-lm", "-o", "speak"], folder=folder)
    trained = linnet.load(run)
    pieces = generate(trained.model, trained.vocabulary, "the lin", tokens=20, temperature=0)
    assert checked(["./speak", "the lin", "20", "0"], folder=folder) == f"{''.join(pieces)}\n"


def test_an_option_of_another_target_is_an_error(run: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["export", str(run), "--to", "js", "--weights", "file"]) == 1
    assert "--weights is an option of --to c" in capsys.readouterr().err
    assert not (run / "export").exists()


def test_onnx_files_of_a_language_model(run: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["export", str(run), "--to", "onnx"]) == 0
    folder = run / "export" / "onnx"
    assert "model.onnx, step.onnx, vocabulary.json" in capsys.readouterr().out
    trained = linnet.load(run)
    assert json.loads((folder / "vocabulary.json").read_text()) == list(trained.vocabulary.tokens)
    tokens = torch.as_tensor(trained.vocabulary.encode("the linnet"))[:, None]
    with torch.no_grad():
        expected, _ = trained.model.log_probs(tokens)
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    assert session.get_outputs()[0].name == "logits"
    before = {each.name: np.zeros((1, 1, each.shape[-1]), np.float32) for each in session.get_inputs()[1:]}
    logits = torch.from_numpy(session.run(["logits"], {"tokens": tokens.numpy(), **before})[0])
    torch.testing.assert_close(logits.log_softmax(-1), expected, rtol=0, atol=1e-5)


def test_int8_is_not_for_onnx(run: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["export", str(run), "--to", "onnx", "--int8"]) == 1
    assert "onnxruntime.quantization" in capsys.readouterr().err
    assert not (run / "export").exists()


def test_a_classifier_as_an_onnx_file(tmp_path: Path):
    model = Classifier(9, 3, ClassifierConfig(unit="sru", hidden_size=4, embedding_size=4)).eval()
    linnet.export_onnx(model, tmp_path / "model.onnx", **classifier_example(model))
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    tokens, lengths = torch.randint(9, (5, 4)), torch.tensor([5, 2, 1, 4])
    (found,) = session.run(["logits"], {"tokens": tokens.numpy(), "lengths": lengths.numpy()})
    with torch.no_grad():
        torch.testing.assert_close(torch.from_numpy(found), model(tokens, lengths), rtol=0, atol=1e-5)
