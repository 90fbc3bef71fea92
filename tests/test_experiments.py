"""The tables of experiments/: every file can be read, every row be made, the README says what is there."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from linnet.models.language import LanguageModel, LanguageModelConfig, with_hidden_size
from linnet.train.config import options

FOLDER = Path(__file__).parent.parent / "experiments"
VOCABULARIES = {
    "ptb": 10_000,
    "wikitext2": 33_278,
    "ptb-char": 50,
    "enwik8": 205,
    "text8": 27,
    "bwb": 793_470,
}
BUDGET = 5_000_000  # of units_on_ptb
PAPERS = {
    *("ran_table1", "ran_table2", "ran_table3", "lrn_table5", "lrn_table7", "sru_table4", "nru_table2"),
    *(f"scrn_table{number}" for number in range(2, 8)),
}

if sys.version_info < (3, 11):
    pytest.importorskip("tomli", reason="the tables are TOML, which Python reads from 3.11 on")


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("experiments_run", FOLDER / "run.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


experiments = load()
TABLES = {name: experiments.read_table(name) for name in experiments.names()}
ROWS = [(table, row) for table in TABLES.values() for row in table.row]
TRAINED = [(t, row) for t, row in ROWS if experiments.is_run(t, row) and row.dynamic is None]


def each(pairs: list[tuple[Any, Any]]) -> Any:
    ids = [f"{table.name}-{row.name}" for table, row in pairs]
    return pytest.mark.parametrize(("table", "row"), pairs, ids=ids)


def write(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> None:
    """A table of one's own, named `own`."""
    monkeypatch.setattr(experiments, "HERE", folder)
    (folder / "own.toml").write_text(f'title = "own"\npaper = ""\nmetric = "bpc"\n{text}')


# ------------------------------------------------------------------------------------- the tables


def test_every_table_of_the_papers_is_there():
    assert set(TABLES) == PAPERS | {"units_on_ptb"}


@pytest.mark.parametrize("table", TABLES.values(), ids=list(TABLES))
def test_the_rows_of_a_table_can_be_made(table: Any):
    for row in table.row:
        if (table, row) in TRAINED:
            assert experiments.config_of(table, row).data.corpus
        else:
            with pytest.raises(ValueError, match=f"{row.name} of {table.name} is no training run"):
                experiments.config_of(table, row)


@pytest.mark.parametrize("table", TABLES.values(), ids=list(TABLES))
def test_the_papers_figures_are_numbers(table: Any):
    for row in table.row:
        assert all(type(value) in (int, float) and value > 0 for value in row.paper.values()), row.name
        ours = not table.paper or row.name.startswith("short") or row.expected
        assert "test" in row.paper or ours, f"{row.name} has no figure"


def test_reasons_are_used():
    for table in TABLES.values():
        assert set(table.reasons) == {row.not_run for row in table.row if row.not_run}, table.name


@each([pair for pair in ROWS if pair[1].expected])
def test_recipes_have_the_settings_of_the_paper(table: Any, row: Any):
    config = experiments.config_of(table, row)
    found = {field.name: getattr(getattr(config, part), field.name) for part, field, _ in options("lm")}
    assert {name: found[name] for name in row.expected} == row.expected


@each([pair for pair in TRAINED if {"parameters", "rnn_parameters"} & pair[1].paper.keys()])
def test_models_have_the_size_of_the_paper(table: Any, row: Any):
    """To within what the paper rounds, and 2 % where it says `about`."""
    config = experiments.config_of(table, row)
    model = LanguageModel(VOCABULARIES[config.data.corpus], config.model, device="meta")
    if "parameters" in row.paper:
        expected, found = row.paper["parameters"], model.count()
        slack = 0.02 * expected if table.name == "nru_table2" else 0.51e6
    else:
        expected, found = row.paper["rnn_parameters"], sum(p.numel() for p in model.layers.parameters())
        slack = 0.015e6
    assert found == pytest.approx(expected, abs=slack)


def test_five_units_have_one_budget():
    table = TABLES["units_on_ptb"]
    assert [row.name for row in table.row] == ["lstm", "sru", "lrn", "ran", "scrn"]
    for row in table.row:
        model = experiments.config_of(table, row).model
        off = [abs(count(with_hidden_size(model, model.hidden_size + by)) - BUDGET) for by in (-1, 0, 1)]
        assert off[1] == min(off), f"{row.name}: another width is closer to the budget"


def count(model: LanguageModelConfig) -> int:
    return LanguageModel(VOCABULARIES["ptb"], model, device="meta").count()


def test_shorter_ablations_differ_in_one_thing_each():
    table = TABLES["scrn_table5"]
    whole = experiments.config_of(table, table.find("short"))
    rates = {"input_dropout", "layer_dropout", "output_dropout"}
    without = {
        "regularization": rates | {"tied"},
        "context-dropout": {"context_dropout"},
        "context-softmax": {"unit_options"},
    }
    for part, names in without.items():
        row = table.find(f"short-no-{part}")
        assert set(experiments.differences(whole, experiments.config_of(table, row))) == names


# ----------------------------------------------------------------------------- results and README


def test_results_are_of_rows_that_exist():
    for result in experiments.read_results():
        assert (TABLES[result["table"]], TABLES[result["table"]].find(result["row"])) in ROWS
        assert all(float(result[name]) > 0 for name in ("parameters", "test"))


def test_the_readme_is_up_to_date():
    page = experiments.README.read_text(encoding="utf-8")
    fresh = experiments.with_part(page, experiments.readme_part(experiments.read_results()))
    assert page == fresh, "run: python experiments/run.py --readme"


def test_a_line_takes_the_place_of_the_same_one(tmp_path: Path):
    path = tmp_path / "results.csv"
    blank = dict.fromkeys(experiments.COLUMNS, "")
    for row, changed, test in (("a", "", "3"), ("b", "", "4"), ("a", "lr=1", "5"), ("a", "", "2")):
        experiments.keep({**blank, "table": "t", "row": row, "changed": changed, "test": test}, path)
    found = [(line["row"], line["changed"], line["test"]) for line in experiments.read_results(path)]
    assert found == [("a", "", "2"), ("b", "", "4"), ("a", "lr=1", "5")]


# ---------------------------------------------------------------------------------------- running


def test_a_row_is_made_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any):
    rows = (
        '[settings]\ncorpus = "text"\nlevel = "char"\nhidden_size = 4\nembedding_size = 4\nbatch = 2\n'
        "steps = 2\n"
        '[[row]]\nname = "a"\nlabel = "A"\nsettings = { unit = "lrn" }\npaper = { test = 3.5 }\n'
        '[[row]]\nname = "b"\nlabel = "B"\nafter = "a"\nsettings = { unit = "lrn" }\n'
        '[[row]]\nname = "c"\nlabel = "C"\nafter = "b"\ndynamic = { dynamic_batch = 2 }\n'
    )
    write(monkeypatch, tmp_path, rows)
    monkeypatch.setattr(experiments, "RUNS", tmp_path / "runs")
    (tmp_path / "birds.txt").write_text("the linnet sings in the tree\n" * 60)
    common = ["--path", str(tmp_path / "birds.txt"), "--results", str(tmp_path / "results.csv")]
    for row, more in (("a", []), ("a", ["--steps", "3", "--note", "longer"]), ("b", []), ("c", [])):
        assert experiments.main(["own", "--row", row, *common, *more]) == 0
    lines = experiments.read_results(tmp_path / "results.csv")
    assert [(line["row"], line["changed"], line["steps"]) for line in lines] == [
        *(("a", "", "2"), ("a", "steps=3", "3"), ("b", "", "2"), ("c", "", "")),
    ]
    assert lines[1]["note"] == "longer"
    assert all(0 < float(line["test"]) < 10 for line in lines)
    capsys.readouterr()
    assert experiments.main(["own", "--results", str(tmp_path / "results.csv")]) == 0
    shown = capsys.readouterr().out
    assert "3.5" in shown
    assert "steps=3" in shown


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["scrn_tabel4"], "did you mean 'scrn_table4'?"),
        (["scrn_table4", "--row", "small-nd-wd"], "did you mean 'small-nd-wt'?"),
        (["scrn_table4", "--row", "small-lstm-nd-kim"], "cannot be run; quoted by the paper"),
        (["scrn_table4", "--lr", "1"], "need --row"),
    ],
)
def test_wrong_names_are_answered(arguments: list[str], told: str, capsys: Any):
    assert experiments.main(arguments) == 1
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ('name = "a"\nlabel = ""\nrecip = "ran-bwb"', "a row has no 'recip'; did you mean 'recipe'?"),
        ('name = "a"\nlabel = ""\nquoted = true\npaper = { tset = 1 }', "got 'tset'"),
        ('name = "a"\nlabel = ""\nnot_run = "time"', "no reason 'time'"),
        ('name = "a"\nlabel = ""', "says why it is not run"),
        ('name = "a"\nlabel = ""\nrecipe = "x"\nafter = "b"', "no row 'b'"),
    ],
)
def test_wrong_rows_are_answered(row: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(monkeypatch, tmp_path, f"[[row]]\n{row}\n")
    with pytest.raises(ValueError, match=r"own\.toml") as caught:
        experiments.read_table("own")
    assert told in str(caught.value)
