"""The tables of experiments/: every file can be read, every row be made, the README says what is there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.fresh import has_history
from experiments import (
    claims,
    curve_figures,
    curves,
    ett_table,
    layer_times,
    ranks,
    readme,
    results,
    run,
    show,
    tables,
    times,
    training,
)
from linnet.models.language import LanguageModel, LanguageModelConfig, with_hidden_size
from linnet.models.sequence import SequenceModel
from linnet.runs.config import differences, options
from linnet.runs.records import read_result
from linnet.tasks import TASKS

VOCABULARIES = {
    "ptb": 10_000,
    "wikitext2": 33_278,
    "ptb-char": 50,
    "enwik8": 205,
    "text8": 27,
    "bwb": 793_470,
}
BUDGET = 2_500_000  # of units_on_ptb
PAPERS = {
    *("ran_table1", "ran_table2", "ran_table3", "lrn_figure1"),
    *(f"lrn_table{number}" for number in range(1, 8)),
    *(f"sru_table{number}" for number in range(1, 5)),
    *("sru_figure2", "sru_figure5", "sru_figure7", "nru_table2"),
    *(f"scrn_table{number}" for number in range(2, 8)),
    *("nru_figure1", "nru_figure2", "nru_figure4", "nru_table3", "nru_figure8", "nru_analysis"),
}
OURS = {"units_on_ptb", "nru_copying", "nru_variable", "nru_denoise"} | {
    *("series_sets", "sru_context", "m4_hourly", "m4_weekly", "ett"),
}
OURS |= {f"today_{name}" for name in ("adding", "digits", "fitzhugh", "parity", "selective")}

if sys.version_info < (3, 11):
    pytest.importorskip("tomli", reason="the tables are TOML, which Python reads from 3.11 on")

TABLES = {name: tables.read_table(name) for name in tables.names()}
ROWS = [(table, row) for table in TABLES.values() for row in table.row]
TRAINED = [(t, row) for t, row in ROWS if tables.is_run(t, row) and not tables.only_evaluates(row)]


def each(pairs: list[tuple[Any, Any]]) -> Any:
    ids = [f"{table.name}-{row.name}" for table, row in pairs]
    return pytest.mark.parametrize(("table", "row"), pairs, ids=ids)


def write(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> None:
    """A table of one's own, named `own`."""
    monkeypatch.setattr(tables, "HERE", folder)
    (folder / "own.toml").write_text(f'title = "own"\npaper = ""\nmetric = "bpc"\n{text}')


# ------------------------------------------------------------------------------------- the tables


def test_every_table_of_the_papers_is_there():
    assert set(TABLES) == PAPERS | OURS


@pytest.mark.parametrize("table", TABLES.values(), ids=list(TABLES))
def test_the_rows_of_a_table_can_be_made(table: Any):
    for row in table.row:
        if (table, row) in TRAINED:
            assert tables.config_of(table, row).task == table.task
        else:
            with pytest.raises(ValueError, match=f"{row.name} of {table.name} is no training run"):
                tables.config_of(table, row)


@pytest.mark.parametrize("table", TABLES.values(), ids=list(TABLES))
def test_the_papers_figures_are_numbers(table: Any):
    for row in table.row:
        assert all(type(value) in (int, float) and value > 0 for value in row.paper.values()), row.name
        ours = not table.paper or row.name.startswith("short") or row.expected
        # Figures are curves; where the text says nothing of one either, there is nothing to quote.
        told = "test" in row.paper or row.says or "_figure" in table.name
        assert told or ours, f"{row.name} has no figure"


def test_reasons_are_used():
    for table in TABLES.values():
        assert set(table.reasons) == {row.not_run for row in table.row if row.not_run}, table.name


@each([pair for pair in ROWS if pair[1].expected])
def test_recipes_have_the_settings_of_the_paper(table: Any, row: Any):
    config = tables.config_of(table, row)
    found = {field.name: getattr(getattr(config, part), field.name) for part, field, _ in options("lm")}
    assert {name: found[name] for name in row.expected} == row.expected


@each([pair for pair in TRAINED if {"parameters", "rnn_parameters"} & pair[1].paper.keys()])
def test_models_have_the_size_of_the_paper(table: Any, row: Any):
    """To within what the paper rounds, and 2 % where it says `about`."""
    config = tables.config_of(table, row)
    model = model_of(config)
    if "parameters" in row.paper:
        expected, found = row.paper["parameters"], model.count()
        slack = 0.02 * expected if table.name.startswith("nru") else 0.51e6
    else:
        expected, found = row.paper["rnn_parameters"], sum(p.numel() for p in model.layers.parameters())
        slack = 0.015e6
    assert found == pytest.approx(expected, abs=slack)


def model_of(config: Any) -> Any:
    if config.task == "memory.psmnist":
        return SequenceModel(1, 10, config.model, device="meta")
    return LanguageModel(VOCABULARIES[config.data.corpus], config.model, device="meta")


@pytest.mark.parametrize("name", ["nru_copying", "nru_variable", "nru_denoise", "nru_analysis"])
def test_short_runs_stop_when_the_task_is_solved(name: str):
    """Below a tenth of what to expect without a memory; lags that vary have another baseline in each set."""
    table = TABLES[name]
    for row in table.row:
        config = tables.config_of(table, row)
        if config.loop.stop_below:
            expected = TASKS[config.task](config.data, config.model).source.baseline / 10
            assert config.loop.stop_below == pytest.approx(
                expected, rel=0.02 if name == "nru_variable" else 1e-3
            )
            assert config.loop.steps % config.loop.evaluate_every == 0


def test_what_is_raced_has_as_many_parameters():
    table = TABLES["nru_copying"]
    assert len(table.row) == 23
    for row in table.row:
        config = tables.config_of(table, row)
        # With 144 cells a channel is 1.4 % of all parameters: the rows have 0.9 % too many.
        off = 0.01 if "-144-" in row.name else 0.005
        assert SequenceModel(10, 9, config.model, device="meta").count() == pytest.approx(23_500, rel=off)
        assert row.name.endswith(f"seed{config.loop.seed}")
        assert config.data.data_seed == config.loop.seed


def test_the_options_of_nru_are_varied_one_at_a_time():
    table = TABLES["nru_figure8"]
    base = tables.config_of(table, table.find("base"))
    options = base.model.unit_options
    assert (base.model.hidden_size, options["memory_size"], options["num_heads"]) == (200, 256, 4)
    for row in table.row[1:]:
        other = tables.config_of(table, row)
        (name,) = differences(base, other)
        assert name == ("hidden_size" if row.name.startswith("hidden") else "unit_options")
        assert other.model.unit_options.keys() == options.keys()


def test_five_units_have_one_budget():
    table = TABLES["units_on_ptb"]
    assert [row.name for row in table.row] == ["lstm", "sru", "lrn", "ran", "scrn"]
    for row in table.row:
        model = tables.config_of(table, row).model
        off = [abs(count(with_hidden_size(model, model.hidden_size + by)) - BUDGET) for by in (-1, 0, 1)]
        assert off[1] == min(off), f"{row.name}: another width is closer to the budget"


def count(model: LanguageModelConfig) -> int:
    return LanguageModel(VOCABULARIES["ptb"], model, device="meta").count()


def test_shorter_ablations_differ_in_one_thing_each():
    table = TABLES["scrn_table5"]
    whole = tables.config_of(table, table.find("short"))
    rates = {"input_dropout", "layer_dropout", "output_dropout"}
    without = {
        "regularization": rates | {"tied"},
        "context-dropout": {"context_dropout"},
        "context-softmax": {"unit_options"},
    }
    for part, names in without.items():
        row = table.find(f"short-no-{part}")
        assert set(differences(whole, tables.config_of(table, row))) == names


# ----------------------------------------------------------------------------- results and README


def test_results_are_of_rows_that_exist():
    for result in results.read_results():
        assert (TABLES[result["table"]], TABLES[result["table"]].find(result["row"])) in ROWS
        assert all(float(result[name]) > 0 for name in ("parameters", "test"))


@pytest.mark.skipif(not has_history(), reason="this is no git clone, from which it is known what has changed")
def test_the_readme_is_up_to_date():
    there = readme.README.read_text(encoding="utf-8")
    assert there == readme.page(), "run: python -m experiments.run --readme"


LINE = {
    **dict.fromkeys(results.COLUMNS, ""),
    **{"date": "2026-11-17", "cpu": "a processor", "threads": "1", "table": "t", "row": "a"},
    **{"parameters": "9", "test": "1.5"},
}


def test_a_line_takes_the_place_of_the_same_one(tmp_path: Path):
    path = tmp_path / "results.csv"
    for row, changed, test in (("a", "", "3"), ("b", "", "4"), ("a", "lr=1", "5"), ("a", "", "2")):
        results.store({**LINE, "row": row, "changed": changed, "test": test}, path)
    found = [(line["row"], line["changed"], line["test"]) for line in results.read_results(path)]
    assert found == [("a", "", "2"), ("b", "", "4"), ("a", "lr=1", "5")]


# ---------------------------------------------------------------------------------------- running


def test_a_row_is_made_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any):
    rows = (
        'also = ["loss"]\n[settings]\ncorpus = "text"\nlevel = "char"\nhidden_size = 4\nembedding_size = 4\n'
        "batch = 2\nsteps = 2\n"
        '[[row]]\nname = "a"\nlabel = "A"\nsettings = { unit = "lrn" }\npaper = { test = 3.5 }\n'
        '[[row]]\nname = "b"\nlabel = "B"\nafter = "a"\nsettings = { unit = "lrn" }\n'
        '[[row]]\nname = "c"\nlabel = "C"\nafter = "b"\ndynamic = { dynamic_batch = 2 }\n'
        '[[row]]\nname = "d"\nlabel = "D"\nafter = "b"\nevaluated = { eval_batch = 3 }\n'
    )
    write(monkeypatch, tmp_path, rows)
    monkeypatch.setattr(training, "RUNS", tmp_path / "runs")
    (tmp_path / "birds.txt").write_text("the linnet sings in the tree\n" * 60)
    common = ["--path", str(tmp_path / "birds.txt"), "--results", str(tmp_path / "results.csv")]
    for row, more in (
        ("a", []),
        ("a", ["--steps", "3", "--note", "longer"]),
        ("b", []),
        ("c", []),
        ("d", []),
    ):
        assert run.main(["own", "--row", row, *common, *more]) == 0
    lines = results.read_results(tmp_path / "results.csv")
    assert [(line["row"], line["changed"], line["steps"]) for line in lines] == [
        *(("a", "", "2"), ("a", "steps=3", "3"), ("b", "", "2"), ("c", "", ""), ("d", "", "")),
    ]
    assert lines[1]["note"] == "longer"
    assert all(0 < float(line["test"]) < 10 for line in lines)
    # b is evaluated as it was trained, apart from the number of columns.
    assert lines[-1]["also"].startswith("loss ")
    assert float(lines[-1]["test"]) == pytest.approx(float(lines[2]["test"]), rel=0.05)
    capsys.readouterr()
    assert run.main(["own", "--results", str(tmp_path / "results.csv")]) == 0
    shown = capsys.readouterr().out
    assert "3.5" in shown
    assert "steps=3" in shown


def test_a_row_of_a_memory_task_is_made_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
):
    """With the baseline, the updates until it is solved, and the curve beside the results."""
    monkeypatch.setattr(training, "RUNS", tmp_path / "runs")
    brief = [
        "--span",
        "3",
        "--symbols",
        "2",
        "--recalled",
        "1",
        "--hidden-size",
        "4",
        "--eval-examples",
        "20",
        "--batch",
        "4",
    ]
    common = [*brief, "--steps", "4", "--evaluate-every", "2", "--results", str(tmp_path / "results.csv")]
    assert run.main(["nru_copying", "--row", "nru-seed1", *common]) == 0
    (line,) = results.read_results(tmp_path / "results.csv")
    assert (line["solved"], line["steps"]) == ("never", "4")
    assert float(line["baseline"]) == pytest.approx(np.log(2) / 5, rel=1e-4)
    assert "never" in capsys.readouterr().out
    (curve,) = (tmp_path / "curves").iterdir()
    assert curve.name.startswith("nru_copying-nru-seed1-span=3")
    rows = curves.read_curves(curve)
    assert list(rows[0]) == [*curves.POSITION, "loss", "accuracy", "baseline"]
    assert [(row["split"], row["step"]) for row in rows] == [("valid", "2"), ("valid", "4")]


def test_a_table_names_the_splits_of_its_curves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any):
    settings = (
        "settings = { steps = 4, log_every = 2, length = 5, hidden_size = 4, batch = 2, level = 'char' }"
    )
    (tmp_path / "birds.txt").write_text("the linnet sings in the tree\n" * 60)
    common = ["--row", "a", "--path", str(tmp_path / "birds.txt"), "--run-dir", str(tmp_path / "run")]
    write(
        monkeypatch, tmp_path, f'curves = ["train", "valid"]\n[[row]]\nname = "a"\nlabel = "A"\n{settings}\n'
    )
    assert run.main(["own", *common, "--results", str(tmp_path / "results.csv")]) == 0
    (curve,) = (tmp_path / "curves").iterdir()
    rows = curves.read_curves(curve)
    assert [(row["split"], row["step"]) for row in rows] == [("train", "2"), ("train", "4"), ("valid", "4")]
    assert all(row["lr"] for row in rows[:2])
    assert 0 < float(rows[0]["seconds"]) < float(rows[1]["seconds"]) == float(rows[2]["seconds"])
    for wrong in ('["test"]', '"train"'):
        write(monkeypatch, tmp_path, f'curves = {wrong}\n[[row]]\nname = "a"\nlabel = "A"\n{settings}\n')
        assert run.main(["own"]) == 1
        assert "curves is a list of 'train' and 'valid', or left out; got" in capsys.readouterr().err


def test_figures_are_told_as_papers_tell_them():
    images, copies = TABLES["nru_table3"], TABLES["nru_copying"]
    assert training.figure(images, {"accuracy": 0.95, "loss": 0.1}) == 95
    assert training.figure(copies, {"accuracy": 0.95, "loss": 0.1}) == 0.1
    rows = [{"step": 5, "loss": 0.2, "baseline": 0.3}, {"step": 10, "loss": 0.02, "baseline": 0.3}]
    assert training.solving(copies, rows) == {"baseline": 0.3, "solved": 10}
    assert training.solving(images, rows) == {}
    result = {"valid": "0.01", "test": "0.02", "solved": "10"}
    assert readme.pair(result) == "0.01, 0.02; solved after 10"
    assert readme.paper_of(copies.find("eurnn-seed1")) == "solved in a few hundred updates"


def test_a_damaged_file_of_results_is_an_error_before_a_training_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "results.csv"
    results.store(LINE, path)
    damaged = path.read_text().replace("a processor", "a processor, edited by hand")
    path.write_text(damaged)
    command = [
        "scrn_table4",
        "--row",
        "small-nd-wt",
        "--results",
        str(path),
        "--run-dir",
        str(tmp_path / "run"),
    ]
    assert run.main(command) == 1
    assert "line 2 has 19 fields; expected 18" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    assert path.read_text() == damaged


def test_results_of_an_earlier_time_can_be_read(tmp_path: Path):
    path, old = tmp_path / "results.csv", [n for n in results.COLUMNS if n not in ("baseline", "solved")]
    path.write_text(",".join(old) + "\n" + ",".join(LINE[name] for name in old) + "\n")
    (line,) = results.read_results(path)
    assert (line["solved"], line["table"]) == ("", "t")
    path.write_text("date,mood\n")
    with pytest.raises(ValueError, match="other columns"):
        results.read_results(path)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nru_copying", "--row", "nru-seed9"], "did you mean 'nru-seed"),
        (["scrn_tabel4"], "did you mean 'scrn_table4'?"),
        (["scrn_table4", "--row", "small-nd-wd"], "did you mean 'small-nd-wt'?"),
        (["scrn_table4", "--row", "small-lstm-nd-kim"], "cannot be run; quoted by the paper"),
        (["scrn_table4", "--lr", "1"], "need --row"),
    ],
)
def test_wrong_names_are_answered(arguments: list[str], told: str, capsys: Any):
    assert run.main(arguments) == 1
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ('name = "a"\nlabel = ""\nrecip = "ran-bwb"', "a row has no 'recip'; did you mean 'recipe'?"),
        ('name = "a"\nlabel = ""\nquoted = true\npaper = { tset = 1 }', "got 'tset'"),
        ('name = "a"\nlabel = ""\nnot_run = "time"', "no reason 'time'"),
        ('name = "a"\nlabel = ""', "or a reason in not_run"),
        ('name = "a"\nlabel = ""\nrecipe = "x"\nafter = "b"', "no row 'b'"),
    ],
)
def test_wrong_rows_are_answered(row: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(monkeypatch, tmp_path, f"[[row]]\n{row}\n")
    with pytest.raises(ValueError, match=r"own\.toml") as caught:
        tables.read_table("own")
    assert told in str(caught.value)


# ------------------------------------------------------------------------------ repeated runs, pairs


FOLDS = """task = "classify"
folds = 2
curves = ["valid"]
pairs = [["sru", "lrn"]]
settings = { unit = "sru", num_layers = 1, hidden_size = 4, embedding_size = 4, epochs = 1, device = "cpu" }
row = [
  { name = "birds-sru", label = "SRU", settings = { set = "own" }, paper = { test = 90.5 } },
  { name = "birds-lrn", label = "LRN", settings = { set = "own", unit = "lrn" }, paper = { test = 88.0 } },
  { name = "birds-ran", label = "RAN", settings = { set = "own", unit = "ran" }, seeds = [1, 2], says = "" },
]
"""


def test_a_row_is_a_run_for_each_fold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    write(monkeypatch, tmp_path, FOLDS)
    path = tmp_path / "own.toml"
    path.write_text(path.read_text().replace("bpc", "error"))
    monkeypatch.setattr(training, "RUNS", tmp_path / "runs")
    table = tmp_path / "birds.csv"
    table.write_text("text,label\n" + "a fine song,bird\na dull noise,crow\n" * 20)
    common = ["--path", str(table), "--results", str(tmp_path / "results.csv")]
    for name in ("sru", "lrn", "ran"):
        assert run.main(["own", "--row", f"birds-{name}", *common]) == 0
    lines = {line["row"]: line for line in results.read_results(tmp_path / "results.csv")}
    runs = tmp_path / "runs" / "own"
    folders = sorted(f"{place.parent.name}/{place.name}" for place in runs.glob("*/*") if place.is_dir())
    assert folders == [
        *("birds-lrn/fold0", "birds-lrn/fold1", "birds-ran/1", "birds-ran/2"),
        *("birds-sru/fold0", "birds-sru/fold1"),
    ]
    tests = [read_result(runs / "birds-sru" / f"fold{fold}")["test"] for fold in (0, 1)]
    errors = [100 * (1 - each["accuracy"]) for each in tests]
    assert float(lines["birds-sru"]["test"]) == pytest.approx(sum(errors) / 2, rel=1e-4)
    assert [float(value) for value in lines["birds-sru"]["repeats"].split()] == pytest.approx(
        errors, rel=1e-4
    )
    for name, repetitions in (("birds-sru", ["fold0", "fold1"]), ("birds-ran", ["1", "2"])):
        rows = curves.read_curves(curves.curve_path("own", name, curves=tmp_path / "curves"))
        assert [row["run"] for row in rows] == repetitions
    capsys.readouterr()
    assert run.main(["own", "--results", str(tmp_path / "results.csv")]) == 0
    (line,) = [line.split() for line in capsys.readouterr().out.splitlines() if "sru - lrn" in line]
    assert line[:6] == ["own", "birds", "sru", "-", "lrn", "+2.5"]


def test_differences_are_paired():
    def made(repeats: str, changed: str = "") -> dict[str, str]:
        return {"repeats": repeats, "changed": changed}

    difference, error = show.paired_difference([made("3 5 7")], [made("1 1", "lr=2"), made("2 3 4")])
    assert difference == pytest.approx(2)
    assert error == pytest.approx(3**-0.5)
    assert show.paired_difference([made("3 5")], [made("2")]) is None
    assert show.paired_difference([made("")], [made("")]) is None


def test_updates_of_rows_are_timed_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any):
    (tmp_path / "birds.txt").write_text("the linnet sings in the tree\n" * 60)
    sizes = "hidden_size = 4, embedding_size = 4, batch = 2, length = 7"
    rows = [
        f'{{ name = "{unit}", label = "", settings = {{ unit = "{unit}" }} }}' for unit in ("lstm", "sru")
    ]
    where = f'corpus = "text", level = "char", path = "{tmp_path / "birds.txt"}"'
    write(monkeypatch, tmp_path, f"settings = {{ {sizes}, {where} }}\nrow = [{', '.join(rows)}]\n")
    command = ["own", "--rounds", "3", "--threads", "1", "--times", str(tmp_path / "times.csv"), "--rows"]
    times.main([*command, "lstm"])
    times.main([*command, "lstm", "sru"])
    found = times.read_times(tmp_path / "times.csv")
    assert [(line["table"], line["row"]) for line in found] == [("own", "lstm"), ("own", "sru")]
    assert all(float(line["p50_ms"]) > 0 for line in found)
    # 1,740 characters in two columns and windows of 7, less a twentieth for validation and for the test.
    assert {line["updates_per_epoch"] for line in found} == {"111"}
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[3].strip() for line in lines if "own lstm" in line] == ["1.00", "1.00"]
    with pytest.raises(ValueError, match="no row 'gru'"):
        times.main([*command, "gru"])


def test_times_are_of_rows_that_exist():
    for line in times.read_times():
        assert TABLES[line["table"]].find(line["row"]).recipe


def test_layers_are_timed_in_turn_and_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(layer_times, "SIZES", ((3, 4), (5, 8)))
    csv, png = str(tmp_path / "times.csv"), tmp_path / "times.png"
    layer_times.main(["--rounds", "3", "--times", csv, "--picture", str(png)])
    lines = layer_times.read_times(Path(csv))
    layers, sizes = ("nn.LSTM", "conv2d, k = 2", "conv2d, k = 3", "SRU"), [("3", "4"), ("5", "8")]
    assert {layer_times.kind_of(line)[1:] for line in lines} == set(sizes)
    assert [line["layer"] for line in lines] == [*layers] * 4
    assert all(float(line["p50_ms"]) > 0 for line in lines)
    first, png_of_it = layer_times.table(lines), png.read_bytes()
    assert first in capsys.readouterr().out
    # Drawn again, nothing is measured.
    layer_times.main(["--draw", "--times", csv, "--picture", str(png)])
    assert (layer_times.table(layer_times.read_times(Path(csv))), png.read_bytes()) == (first, png_of_it)


def test_a_convolution_over_words_is_that_of_the_paper():
    convolution = layer_times.WordConvolution(4, 3)
    (y,) = convolution(torch.randn(2, 7, 4))
    assert y.shape == (2, 4, 5, 1)
    assert convolution.convolution.weight.shape == (4, 1, 3, 4)


# ---------------------------------------------------------------------------------- figures of curves


def curve_line(run: str, step: int, epoch: int, accuracy: float) -> dict[str, str]:
    line = {
        "split": "valid",
        "run": run,
        "step": step,
        "epoch": epoch,
        "seconds": step / 2,
        "accuracy": accuracy,
    }
    return {name: str(value) for name, value in line.items()}


def test_a_line_is_the_mean_of_its_runs_by_epoch():
    one = [curve_line("fold0", 10, 1, 0.5), curve_line("fold0", 20, 2, 0.7), curve_line("fold0", 30, 3, 0.7)]
    other = [curve_line("fold1", 12, 1, 0.7), curve_line("fold1", 24, 2, 0.7)]
    value = curve_figures.VALUES["accuracy in %"]
    found = [tuple(point) for point in curve_figures.points([one, other], value, "seconds")]
    assert found == [pytest.approx((5.5, 60, 10 * 2**0.5)), pytest.approx((11, 70, 0))]
    # Several lines of one epoch, as training has, are a point at its end.
    both = [curve_line("", 10, 1, 0.5), curve_line("", 20, 1, 0.7)]
    assert [tuple(point) for point in curve_figures.points([both], value, "epoch")] == [(1, 60, 0)]
    by_step = curve_figures.points([both], value, "step")
    assert [tuple(point) for point in by_step] == [pytest.approx((10, 50, 0)), pytest.approx((20, 70, 0))]


def test_recorded_curves_are_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    picture = tmp_path / "figure.png"
    command = ["sru_figure3", "--by", "epoch", "--curves", str(tmp_path), "--picture", str(picture)]
    with pytest.raises(ValueError, match="no curves of sru_table1"):
        curve_figures.main(command)
    lines = [curve_line("fold0", 10, 1, 0.5), curve_line("fold1", 10, 1, 0.6)]
    path = curves.curve_path("sru_table1", "trec-lstm", curves=tmp_path)
    path.write_bytes(curves.curve_file(list(lines[0])).content(lines))
    curve_figures.main(command)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "no curves yet: cr-cnn, cr-lstm, " in capsys.readouterr().out


@pytest.mark.parametrize("figure", curve_figures.FIGURES.values(), ids=list(curve_figures.FIGURES))
def test_figures_are_of_rows_whose_curves_are_stored(figure: Any):
    table = TABLES[figure.table]
    for panel in figure.panels:
        assert panel.split in table.curves
        for line in panel.lines:
            assert all(table.find(row).recipe for row in line.rows)


# ------------------------------------------------------------------------------- claims and verdicts

CLAIMS = claims.read_claims()


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.says)
def test_claims_are_about_rows_that_exist(claim: Any):
    assert claim.source.split(",")[0] in ("RAN", "LRN", "NRU", "SRU", "SCRN")
    known = claims.times_of(claim.table) if claim.table == "layer_times" else TABLES[claim.table].row
    known = {getattr(row, "name", row) for row in known}
    rows = [row for pair in claim.pairs for row in pair if isinstance(row, str)]
    assert {row.format(seed=seed) for row in rows for seed in claim.seeds or (0,)} <= known
    assert claims.of_paper(claim)


def line_of(row: str, repeats: str, **more: str) -> dict[str, str]:
    return {**LINE, "table": "sru_table1", "row": row, "repeats": repeats, **more}


def found(one: str, other: str, **more: Any) -> list[Any]:
    """What comes of the accuracies of two rows."""
    claim = claims.Claim("SRU", "better", "sru_table1", (("cr-sru2", "cr-lstm"),), **more)
    return claims.compared(claim, [line_of("cr-sru2", one), line_of("cr-lstm", other)])


def test_a_difference_of_two_standard_errors_decides():
    # Differences of 1, 2 and 3: 2 with a standard error of 0.58, and a mean of 1 with the same one.
    assert [each.verdict for each in found("3 5 7", "2 3 4")] == ["confirmed"]
    assert found("3 5 7", "2 3 4")[0].shown == "+2.00 ± 0.58"
    assert [each.verdict for each in found("2 3 4", "3 5 7")] == ["contradicted"]
    assert [each.verdict for each in found("2 4 6", "2 3 4")] == ["undecided"]
    assert [each.verdict for each in found("2 3 4", "2 4 6", within=1.0)] == ["undecided"]
    assert [each.verdict for each in found("2 3 4", "2 4 6", within=3.0)] == ["confirmed"]


def test_one_run_decides_nothing():
    for one, other, order in (("5", "4", "in"), ("4", "5", "against")):
        (single,) = found(one, other)
        assert (single.verdict, single.agrees) == ("one run", order == "in")
        assert claims.in_words([single]) == f"undecided: one run, {order} the paper's order"
    claim = claims.Claim("SRU", "", "sru_table1", (("cr-sru2", "cr-lstm"),))
    assert claims.in_words(claims.compared(claim, [])) == "**not run**"


def test_a_claim_in_doubt_stays_undecided():
    for one, other in (("3 5 7", "2 3 4"), ("2 3 4", "3 5 7")):
        (single,) = found(one, other, doubt="the vectors are too small")
        assert single.verdict == "undecided"
    claim = claims.Claim(
        "SRU", "", "sru_table1", (("cr-sru2", "cr-lstm"),), doubt="the vectors are too small"
    )
    assert claims.ours(claim, [single]) == f"{single.shown} (the vectors are too small)"


def test_a_run_that_is_not_solved_does_not_speak_for_its_side():
    claim = claims.Claim(
        "NRU", "", "nru_copying", (("nru-seed{seed}", "janet-seed{seed}"),), seeds=(1, 2), measure="solved"
    )

    def verdict(nru: Any, janet: Any) -> str:
        made = [
            {**LINE, "table": "nru_copying", "row": f"{unit}-seed{seed}", "steps": steps, "solved": solved}
            for unit, runs in (("nru", nru), ("janet", janet))
            for seed, (steps, solved) in enumerate(runs, 1)
        ]
        return claims.compared(claim, made)[0].verdict

    early, late = [("10", "10"), ("11", "11")], [("30", "30"), ("31", "31")]
    assert verdict(early, late) == "confirmed"
    assert verdict(early, [("30", "never")] * 2) == "confirmed"
    assert verdict([("10", "never")] * 2, late) == "undecided"
    assert verdict(late, early) == "contradicted"


def test_a_claim_holds_where_all_of_its_comparisons_do():
    def words(*verdicts: str) -> str:
        return claims.in_words([claims.Found("", verdict, True) for verdict in verdicts])

    assert words("confirmed", "confirmed") == "**confirmed**"
    assert words("confirmed", "undecided") == "**partly confirmed**: 1 confirmed, 1 undecided"
    expected = "**contradicted**: 1 confirmed, 1 contradicted, 1 undecided"
    assert words("confirmed", "contradicted", "undecided") == expected
    assert words("one run", "one run") == "undecided: one run each, 2 of 2 in the paper's order"


def test_times_decide_where_their_ranges_do_not_overlap(monkeypatch: pytest.MonkeyPatch):
    def verdict(first: tuple[int, ...], second: tuple[int, ...], at_most: float = 1.0) -> tuple[str, str]:
        rows = {
            name: dict(zip(("p20_ms", "p50_ms", "p80_ms"), map(str, of), strict=True))
            for name, of in (("a", first), ("b", second))
        }
        monkeypatch.setattr(claims, "times_of", lambda table: rows)
        claim = claims.Claim("LRN", "", "lrn_table1", (("a", "b"),), measure="time", at_most=at_most)
        (one,) = claims.compared(claim, [])
        return one.shown, one.verdict

    assert verdict((4, 5, 6), (9, 10, 11)) == ("× 0.50", "confirmed")
    assert verdict((4, 5, 10), (9, 10, 11)) == ("× 0.50", "undecided")
    assert verdict((9, 10, 11), (4, 5, 6)) == ("× 2.00", "contradicted")
    assert verdict((4, 5, 6), (9, 10, 11), at_most=0.3) == ("× 0.50", "contradicted")


def test_changed_rows_change_a_verdict_of_the_readme():
    rows = results.read_results()
    assert claims.claims_part(rows) in readme.README.read_text(encoding="utf-8")
    sets = ("cr", "subj", "mr", "trec", "mpqa", "sst")

    def verdict(sru: str) -> str:
        made = [
            line_of(f"{name}-{unit}", of) for name in sets for unit, of in (("sru2", sru), ("lstm", "1 2 3"))
        ]
        others = [row for row in rows if row["table"] != "sru_table1"]
        lines = claims.claims_part([*others, *made]).splitlines()
        (line,) = [line for line in lines if "more accurate than LSTM on all six sets" in line]
        return line.split(" | ")[-1]

    assert verdict("2 3 4") == "**confirmed** |"
    assert verdict("0 1 2") == "**contradicted** |"
    assert verdict("0 1 4") == "undecided |"


def test_errors_of_ett_are_beside_those_of_the_baselines():
    own = {**LINE, "table": "ett", "row": "etth1-24-all", "test": "0.2", "repeats": "0.1 0.3"}
    naive, linear = "seasonal naive mse 0.4, seasonal naive mae 0.7", "linear mse 0.15, linear mae 0.5"
    own |= {"also": f"mae 0.6, {naive}, {linear}"}
    lines = ett_table.ett_part([own]).splitlines()
    assert (
        "| ETTh1, 24 hours, all seven channels | 0.2000 ± 0.1414 / 0.600 | 0.1500 / 0.500 | 0.4000 / 0.700 |"
        in lines
    )
    said = "SRU is ahead of the linear model in 0 of 1 tasks and of seasonal naive in 1."
    assert lines[-1].endswith(f"With all seven channels, {said}")


def test_units_are_ranked_in_tasks_with_at_least_three():
    tasks, paper = ranks.read_tasks()
    copying = {**LINE, "table": "nru_figure1", "solved": "5"}
    made = [
        {**copying, "row": f"{unit}-200", "steps": steps} for unit, steps in (("nru", "9"), ("janet", "7"))
    ]
    (task,) = [task for task in tasks if task.name == "copying, T = 200"]
    assert [(each.unit, each.place) for each in ranks.ranked(task, made)] == [("JANET", 1), ("NRU", 2)]
    assert "| NRU |" not in ranks.ranks_part(made)
    tied = [*made, {**copying, "row": "gru-200", "steps": "7"}]
    assert [each.place for each in ranks.ranked(task, tied)] == [1, 1, 3]
    part = ranks.ranks_part(tied)
    assert "| GRU | 1 | 2 | 1 | 1 | 1 |" in part
    assert "| NRU | 4 | 7 | 0 | 0 | 1 |" in part
    for task in tasks:
        names = {row.name for row in TABLES[task.table].row}
        assert {row.format(seed=seed) for row in task.rows.values() for seed in task.seeds or (0,)} <= names
        assert set(task.rows) <= set(paper)
