"""The benchmark measures what it says, keeps its rows, and makes its tables from them."""

from __future__ import annotations

import csv
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks import __main__ as command
from benchmarks import (
    bfloat16,
    blocks,
    classifier,
    contestants,
    engines,
    growth,
    int8,
    loss,
    matching,
    memory,
    options,
    padding,
    reading,
    recurrence,
    report,
    rows,
    start,
    tagging,
    targets,
    translating,
)
from benchmarks.run import run, with_reused_memory
from benchmarks.settings import SHAPES, SOFTMAXES, Settings, Shape, Words, quick
from benchmarks.speed import races
from linnet.bench.timing import Times

TINY = replace(quick(Settings(threads=1)), rounds=1, units=("sru", "lrn", "gru", "nru", "statisticalru"))


class Told(list):
    """What was said, line by line."""

    def __call__(self, text: str) -> None:
        self.extend(text.splitlines())


@pytest.fixture
def book(tmp_path: Path) -> rows.Book:
    return rows.Book(tmp_path / "results.csv", 1, Told())


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows of a tiny run of the parts that need no other process."""
    path = tmp_path_factory.mktemp("bench") / "results.csv"
    for what in ("speed", "steps", "language", "recurrence", "checks", "growth"):
        run(TINY, what, path, again=False, say=Told())
    return path


# -------------------------------------------------------------------------------------- contestants


def test_the_limit_is_the_products_and_no_more(monkeypatch: pytest.MonkeyPatch):
    products: list[tuple[int, ...]] = []
    mm = torch.mm
    monkeypatch.setattr(
        torch, "mm", lambda a, b, out: products.append((*a.shape, *b.shape)) or mm(a, b, out=out)
    )
    assert contestants.matrices_of("sru") == contestants.matrices_of("lrn") == 3
    contestants.limit(3, Shape(5, 2, 4), "inference").build()()
    assert products == [(10, 4, 4, 12)]
    contestants.limit(3, Shape(5, 2, 4), "training").build()()
    assert products[1:] == [(10, 4, 4, 12), (10, 12, 12, 4), (12, 10, 10, 4)]


def test_the_losses_that_race_are_the_same_loss():
    x, weight, bias = torch.randn(6, 4), torch.randn(9, 4), torch.randn(9)
    targets = torch.randint(9, (6,))
    ours, torchs = (made(x, weight, bias, targets) for made in (loss.mixture_nll, loss.all_rows_at_once))
    assert ours.item() == pytest.approx(torchs.item(), rel=1e-5)


def test_the_loss_races_with_all_its_gradients_and_beside_three_products(monkeypatch: pytest.MonkeyPatch):
    asked, products = [], []
    grad, mm = torch.autograd.grad, torch.mm
    monkeypatch.setattr(
        torch.autograd, "grad", lambda y, leaves: asked.append([*map(len, leaves)]) or grad(y, leaves)
    )
    race = loss.race_of(Words(4, 9))
    for name in (str(Words(4, 9)), loss.TORCH):
        race.entrants[name].build()()
    assert asked == [[700, 9, 9]] * 2
    monkeypatch.setattr(
        torch, "mm", lambda a, b, out: products.append((*a.shape, *b.shape)) or mm(a, b, out=out)
    )
    race.entrants["limit"].build()()
    assert products == [(700, 4, 4, 9), (700, 9, 9, 4), (9, 700, 700, 4)]


def test_classifiers_race_with_as_many_layers_and_all_dropouts(book: rows.Book):
    made = classifier.measure(TINY, book)
    to = "classifier with nn.LSTM"
    assert [(row["unit"], row["ratio_to"], row["target"]) for row in made] == [
        ("sru", to, "0.5"),
        ("lrn", to, ""),
        ("nn.LSTM", "", ""),
    ]
    ours, torchs = classifier.ours("lstm", Shape(6, 3, 16)), classifier.TorchClassifier(16)
    trained = sum(weight.numel() for weight in torchs.parameters() if weight.requires_grad)
    assert trained == ours.count()


def test_padding_races_a_full_batch_and_torchs_packed_layer(book: rows.Book):
    made = padding.measure(replace(TINY, threads=2, units=("gru",)), book)
    compared = [(row["backend"], row["ratio_to"]) for row in made if row["ratio_to"]]
    expected = [("lengths", padding.FULL), ("lengths", padding.PACKED), ("packed", padding.LENGTHS)]
    assert compared == expected * len(TINY.modes)
    assert {row["threads"] for row in made} == {"1"}


def test_engines_race_on_one_thread(book: rows.Book):
    pytest.importorskip("onnxruntime")
    made = engines.measure(replace(TINY, threads=2), book)
    assert {row["threads"] for row in made} == {"1"}
    assert list(dict.fromkeys(row["mode"] for row in made)) == list(targets.ALONE)
    compared = [(row["unit"], row["ratio_to"]) for row in made if row["target"] == "1"]
    expected = [(unit, to) for unit in ("gru", "gru frozen") for to in ("nn.GRU", "ONNX Runtime")]
    assert set(compared) >= {*expected, ("gru int8", "torch int8")}
    assert not any(row["ratio_to"] for row in made if row["backend"] != "cpu")


def test_taggers_race_with_the_same_model_of_torch_and_the_crf_with_its_peer(book: rows.Book):
    pytest.importorskip("torchcrf")
    made = tagging.measure(TINY, book)
    assert [(row["unit"], row["mode"], row["ratio_to"]) for row in made] == [
        *((unit, "training", "tagger with nn.LSTM") for unit in ("sru", "lrn", "gru")),
        ("nn.LSTM", "training", ""),
        *(("crf", mode, to) for mode in ("training", "inference") for to in (tagging.PEER, "")),
    ]
    ours, torchs = tagging.ours("lstm", 16), tagging.TorchTagger(16)
    assert count(torchs) == ours.count()


def test_encoders_race_with_the_same_layers_of_torch(book: rows.Book):
    made = reading.measure(TINY, book)
    assert [(row["unit"], row["d"], row["ratio_to"], row["target"]) for row in made] == [
        ("sru", "9", "encoder with nn.LSTM", "0.4"),
        ("lrn", "9", "encoder with nn.LSTM", ""),
        ("nn.LSTM", "9", "", ""),
    ]
    ours, torchs = reading.Encoder("lstm", 9), reading.TorchEncoder(9)
    assert count(torchs) == count(ours)
    x = torch.randn(5, 2, 9)
    assert ours(x).shape == torchs(x).shape


def test_translators_race_with_the_same_model_of_torch(book: rows.Book):
    made = translating.measure(TINY, book)
    assert [(row["unit"], row["mode"], row["ratio_to"], row["target"][:5]) for row in made] == [
        ("lrn", "decoding", "translator with nn.GRU", "0.666"),
        ("sru", "decoding", "translator with nn.GRU", ""),
        ("gru", "decoding", "translator with nn.GRU", ""),
        ("nn.GRU", "decoding", "", ""),
    ]
    torchs = translating.TorchTranslator(translating.config_of("gru", 16)).eval()
    source = torch.randint(3, translating.WORDS, (4, 2))
    logits, start = torchs(source, None, source), torchs.start(source)
    stepped = torchs.step(torch.zeros(2, dtype=torch.int64), start).logits
    torch.testing.assert_close(stepped, logits[0])
    # All make as many steps: a translation has as many words as its source.
    for model in (torchs, translating.ours("lrn", 16)):
        assert model.eval().translate(source, beam=4, extra=0).tokens[:, 0].ne(0).all()


def test_word_by_word_attention_races_with_its_products(book: rows.Book, monkeypatch: pytest.MonkeyPatch):
    made = matching.measure(replace(TINY, units=("lrn",)), book)
    assert [(row["unit"], row["mode"], row["ratio_to"], row["target"]) for row in made] == [
        *(("lrn", mode, to, "1.3" if to else "") for mode in matching.MODES for to in (matching.LIMIT, "")),
    ]
    products: list[tuple[int, ...]] = []
    mm = torch.mm
    monkeypatch.setattr(
        torch, "mm", lambda a, b, out: products.append((*a.shape, b.shape[1])) or mm(a, b, out=out)
    )
    matching.limit(matching.Matching("lrn", 8), Shape(3, 2, 8), "inference")()
    # The input of the lower cell and the keys; in each of three steps the query, the higher cell, the scores.
    assert products == [(6, 8, 24), (32, 16, 16), *(3 * [(2, 8, 16), (2, 16, 24), (128, 4, 1)])]


def count(model: torch.nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())


def test_a_step_of_the_classifier_updates_it():
    model = classifier.ours("sru", Shape(4, 2, 8))
    before = [weight.detach().clone() for weight in model.parameters()]
    classifier.call_of(model, Shape(4, 2, 8))()
    assert not any(torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))


def test_a_row_of_the_loss_for_each_yardstick(book: rows.Book):
    made = loss.measure(TINY, book)
    assert [(row["unit"], row["backend"], row["ratio_to"]) for row in made] == [
        ("softmax of 50", "in pieces", "F.cross_entropy"),
        ("softmax of 50", "in pieces", "limit"),
        ("softmax of 50", "F.cross_entropy", ""),
        ("softmax of 50", "limit", ""),
    ]
    assert [(words.words, words.d) for words in SOFTMAXES] == [
        *((10_000, 200), (10_000, 650), (33_278, 200), (33_278, 650)),
    ]
    for words in SOFTMAXES:
        for to in ("F.cross_entropy", "limit"):
            assert targets.target_of(str(words), "training", Shape(35, 20, words.d), to)


# ------------------------------------------------------------------------------------------ rows


def test_rows_are_appended_and_nothing_else_is_left(tmp_path: Path):
    path = tmp_path / "folder" / "results.csv"
    for unit in ("sru", "lrn"):
        rows.Book(path, 2, print).add({"what": "speed", "unit": unit, "p50_ms": 1 / 3, "met": True})
    assert [file.name for file in path.parent.iterdir()] == ["results.csv"]
    with path.open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [row["unit"] for row in found] == ["sru", "lrn"]
    assert tuple(found[0]) == rows.COLUMNS
    assert found == rows.read(path)
    told = {key: found[0][key] for key in ("p50_ms", "met", "dtype", "threads", "memory", "torch")}
    version = torch.__version__
    assert told == dict(zip(told, ("0.33333", "yes", "float32", "2", "new", version), strict=True))
    assert all(found[0][key] for key in ("date", "cpu", "linnet", "llvmlite"))


def test_a_file_with_other_columns_is_left_alone(tmp_path: Path):
    path = tmp_path / "results.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="has other columns"):
        rows.append(path, [])
    assert path.read_text() == "a,b\n1,2\n"
    with pytest.raises(KeyError, match="no column colour"):
        rows.make_row({"colour": 1})
    with pytest.raises(FileNotFoundError, match="no rows yet"):
        rows.read(tmp_path / "none.csv")


# ----------------------------------------------------------------------------------------- parts


def test_speed_has_a_row_for_each_comparison(measured: Path):
    found = {
        (row["unit"], row["backend"], row["mode"], row["ratio_to"])
        for row in rows.read(measured)
        if row["what"] == "speed"
    }
    for mode in ("inference", "training", "step"):
        for unit in ("sru", "lrn", "gru", "nru", "statisticalru"):
            assert (unit, "cpu", mode, "nn.LSTM") in found
        assert {("sru", "cpu", mode, "limit"), ("lrn", "cpu", mode, "sru")} <= found
        assert {("gru", "cpu", mode, "nn.GRU"), ("nru", "cpu", mode, "reference")} <= found
        assert {("nn.LSTM", "torch", mode, ""), ("limit of 3", "torch", mode, "")} <= found
    assert not any(unit in ("gru", "nru") and to == "limit" for unit, _, _, to in found)


def test_ratios_are_those_of_the_medians(measured: Path):
    found = rows.read(measured)
    shape = [row for row in found if row["what"] == "speed" and row["mode"] == "training"]
    (lrn,) = [row for row in shape if (row["unit"], row["ratio_to"]) == ("lrn", "sru")]
    sru = next(row for row in shape if row["unit"] == "sru")
    assert float(lrn["ratio"]) == pytest.approx(float(lrn["p50_ms"]) / float(sru["p50_ms"]), rel=1e-3)
    for row in found:
        # A row that compares two other rows, such as a percentile under load, has a ratio only.
        assert not row["p20_ms"] or float(row["p20_ms"]) <= float(row["p50_ms"]) <= float(row["p80_ms"])
        assert (row["met"] != "") == (row["target"] != "")
        if row["target"]:
            assert (row["met"] == "yes") == (float(row["ratio"]) <= float(row["target"]))


def test_every_part_has_its_rows(measured: Path):
    found = rows.read(measured)
    parts = {"speed", "cell", "step", "stream", "load", "language", "recurrence", "checks", "growth"}
    assert {row["what"] for row in found} == parts
    checked = [(row["unit"], row["mode"]) for row in found if row["backend"] == "checks"]
    assert {("sru", "inference"), ("sru", "training"), ("nru", "training")} <= set(checked)
    kinds = [(row["unit"], row["mode"]) for row in found if row["what"] == "recurrence"]
    assert kinds == [(unit, kind) for unit in ("sru", "lrn") for kind in ("forward", "backward")]
    lengths = [
        row["L"] for row in found if (row["what"], row["unit"], row["mode"]) == ("growth", "sru", "training")
    ]
    assert lengths == ["4", "8"]


def test_int8_races_float32():
    book = rows.Book(None, 1, print)
    found = int8.measure(replace(TINY, units=("lstm",)), book)
    compared = [(row["backend"], row["mode"]) for row in found if row["ratio_to"] == "float32"]
    assert compared == [("int8", "step"), ("int8", "inference")]


def test_blocks_race_single_steps():
    book = rows.Book(None, 1, print)
    found = blocks.measure(replace(TINY, units=("lrn", "lstm")), book)
    kinds = [(row["unit"], row["backend"], row["ratio_to"], row["threads"]) for row in found]
    steps = blocks.STEPS
    assert kinds == [("lstm", steps, "", "1"), ("lstm", "run", steps, "1"), ("lstm", "module", steps, "1")]


def test_bfloat16_races_float32():
    book = rows.Book(None, 1, print)
    found = bfloat16.measure(replace(TINY, units=("lstm",)), book)
    compared = [(row["backend"], row["mode"]) for row in found if row["ratio_to"] == bfloat16.TO]
    assert compared == [("bfloat16", mode) for mode in TINY.modes]


def test_options_race_the_loop_and_torch():
    book = rows.Book(None, 1, print)
    found = options.measure(replace(TINY, modes=("training",)), book)
    compared = {(row["unit"], row["ratio_to"]) for row in found if row["ratio_to"]}
    assert compared == {(name, "reference") for name in options.OPTIONS} | {("lstm, projected", "nn.LSTM")}


def test_the_default_run_covers_what_was_asked_for():
    asked = {(32, 32, 256), (256, 32, 512), (1024, 8, 512), (784, 100, 128), (1, 1, 512)}
    few_rows = {(128, 1, 512), (1000, 1, 256), (1, 16, 512)}
    assert set(map(tuple, SHAPES)) == asked | few_rows
    assert Settings().lengths == (256, 512, 1024, 2048, 4096, 8192)
    made = [(race.shape, race.mode) for race in races(Settings(units=("sru",), references=()))]
    both = [(shape, mode) for shape in SHAPES[:-2] for mode in ("inference", "training")]
    assert made == [*both, *((shape, "step") for shape in SHAPES[-2:])]


@pytest.mark.parametrize(
    ("unit", "mode", "width", "to", "figure"),
    [
        ("sru", "inference", 512, "nn.LSTM", 0.30),
        ("lrn", "step", 512, "nn.LSTM", None),
        ("lrn", "step", 64, "nn.LSTMCell", 0.7),
        ("ran", "inference", 512, "own products", 1.25),
        ("sru", "training", 128, "limit", 1.30),
        ("lrn", "inference", 256, "limit", 1.10),
        ("scrn", "training", 128, "nn.LSTM", 0.55),
        ("gru", "training", 128, "nn.GRU", 1.0),
        ("gru", "training", 128, "nn.LSTM", None),
        ("janet", "training", 128, "nn.LSTM", None),
        ("nru", "training", 128, "reference", 0.33),
        ("nru", "inference", 128, "reference", None),
        ("sru", "training", 128, "sru package", 1 / 3),
    ],
)
def test_targets(unit: str, mode: str, width: int, to: str, figure: float | None):
    assert targets.target_of(unit, mode, Shape(32, 32, width), to) == figure


def test_bytes_that_must_move():
    """SRU reads u, f, r and x, and keeps c beside h; in LRN what is kept is the output."""
    size = 4 * 5 * 3 * 2
    assert recurrence.bytes_moved("sru", Shape(5, 3, 2)) == {"forward": 6 * size, "backward": 10 * size}
    assert recurrence.bytes_moved("lrn", Shape(5, 3, 2)) == {"forward": 4 * size, "backward": 8 * size}


def test_growth_is_by_the_step():
    times = {"10": Times(1, 1, 1), "40": Times(8, 8, 8)}
    row = growth.row("sru", "training", Shape(40, 2, 3), times)
    assert (row["ratio"], row["target"], row["met"]) == (2.0, 1.2, False)


def test_peak_memory_grows_with_the_length(book: rows.Book):
    """And a process starts from its own peak, not from that of the one that started it."""
    held = torch.ones(60 << 18)
    found = memory.measure(replace(TINY, units=("sru",), peak=Shape(2000, 8, 64)), book)
    assert [row["unit"] for row in found] == ["sru", "nn.LSTM"]
    assert len(held)
    for row in found:
        # x has 4 MB; no layer does with less than its output and the gradient of x, and 100 is absurd.
        assert 8 < float(row["peak_mb"]) < 100
    assert found[0]["target"] == "0.6"


def test_the_import_is_measured_in_a_process_of_its_own(book: rows.Book):
    (found,) = start.measure(replace(TINY, starting=()), book)
    assert (found["mode"], found["target"]) == ("import", "300 ms")
    assert float(found["p50_ms"]) > 1


def test_a_first_call_finds_what_a_cold_one_compiled(monkeypatch: pytest.MonkeyPatch):
    """Each pair has a cache of its own, which is empty at first."""
    caches: list[str] = []

    def fake(flag: str, code: str, LINNET_CACHE: str) -> str:
        assert "linnet.LRN(" in code
        assert Path(LINNET_CACHE).is_dir()
        caches.append(LINNET_CACHE)
        return "3" if caches.count(LINNET_CACHE) == 1 else "0.5"

    monkeypatch.setattr(start, "run_python", fake)
    cold, warm = start.first_calls("lrn", replace(TINY, repeats=2))
    assert len(set(caches)) == 2
    assert not any(Path(cache).exists() for cache in caches)
    assert (cold["mode"], cold["p50_ms"], cold["target"]) == ("cold compile", 3000.0, "6000 ms")
    assert (warm["mode"], warm["p50_ms"], warm["target"]) == ("first call", 500.0, "1000 ms")


def test_a_part_that_cannot_run_is_told(book: rows.Book, monkeypatch: pytest.MonkeyPatch):
    def fails(*_: str, **__: str) -> str:
        raise RuntimeError("exit code 1: no memory")

    monkeypatch.setattr(start, "run_python", fails)
    monkeypatch.setattr(memory, "run_python", fails)
    assert start.measure(TINY, book) == memory.measure(replace(TINY, units=("sru",)), book) == []
    assert book.say == [
        "skipped: start: exit code 1: no memory",
        "skipped: memory of sru: exit code 1: no memory",
        "skipped: memory of nn.LSTM: exit code 1: no memory",
    ]


def test_reused_memory_is_measured_in_a_new_process(book: rows.Book):
    """The new process adds its rows to the same file."""
    with_reused_memory(replace(TINY, units=("lrn",), modes=("training",)), book)
    assert book.path is not None
    found = rows.read(book.path)
    assert {(row["mode"], row["memory"]) for row in found} == {("training", "reused")}


def test_the_peer_is_skipped_where_it_is_not_installed():
    told = Told()
    settings = replace(TINY, units=("sru",), peers=True, modes=("inference",), shapes=(Shape(2, 1, 4),))
    run(settings, "speed", None, again=False, say=told)
    text = "\n".join(told)
    assert "sru package" in text
    if "sru" not in sys.modules:
        assert "skipped: sru package: " in text


# --------------------------------------------------------------------------------------- reports


def test_the_table_lines_up(measured: Path):
    text = report.table([row for row in rows.read(measured) if row["what"] == "growth"])
    head, *body = text.splitlines()
    assert head.split()[:3] == ["unit", "by", "mode"]
    assert len(body) == 8
    assert all(line[head.index("mode") :].startswith(("inference", "training")) for line in body)
    assert report.table([]) == ""


def test_the_plot_is_drawn_from_the_rows(tmp_path: Path, measured: Path):
    pytest.importorskip("matplotlib")
    plot = tmp_path / "folder" / "speed.png"
    report.write_plot(plot, rows.read(measured))
    assert plot.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="no rows of layers"):
        report.write_plot(plot, [])


# --------------------------------------------------------------------------------------- the command


@pytest.mark.parametrize("policy", ["passive", "active"])
def test_threads_that_do_not_spin_are_reported(policy: str, monkeypatch, capsys):
    monkeypatch.setenv("OMP_WAIT_POLICY", policy)
    monkeypatch.setattr(command, "measure", lambda *given: [])
    command.main(["--quick"])
    assert ("OMP_WAIT_POLICY=passive" in capsys.readouterr().err) == (policy == "passive")


def test_the_command_measures_and_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    tiny = ["--quick", "--threads", "1", "--memory", "new"]
    some = ["--what", "speed", "--units", "sru", "nru", "--shapes", "4x2x8", "1x1x8", "--reference"]
    assert command.main([*some, *tiny, "--results", "rows.csv"]) == 0
    found = rows.read(Path("rows.csv"))
    assert {(row["unit"], row["L"], row["mode"]) for row in found if row["ratio_to"] == "nn.LSTM"} == {
        (unit, length, mode)
        for unit in ("sru", "nru")
        for length, mode in (("4", "inference"), ("4", "training"), ("1", "step"))
    }
    assert "reference" not in {row["ratio_to"] for row in found}
    # Without --what nothing is measured.
    assert command.main(["--results", "rows.csv", "--plot"]) == 0
    assert rows.read(Path("rows.csv")) == found
    assert Path("benchmarks/speed.png").is_file()


def test_a_quick_run_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    assert command.main(["--what", "growth", "--units", "sru", "--quick", "--threads", "1"]) == 0
    assert list(tmp_path.iterdir()) == []
    told = capsys.readouterr().out
    assert "growth with the length of the sequences" in told
    assert re.search(r"4 rows; \d of the 2 that have a target meet it\. \d+ s\.", told)


def test_no_rows_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)
    assert command.main(["--plot"]) == 1
    assert "benchmarks: there are no rows yet" in capsys.readouterr().err


def test_a_wrong_part_is_answered(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        command.main(["--what", "sped"])
    assert "did you mean 'speed'?" in capsys.readouterr().err
