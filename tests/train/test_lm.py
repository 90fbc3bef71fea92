"""The whole way, on a text of a few thousand characters: train, eval, generate, compare, report."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from linnet import cli
from linnet.analysis.report import page, write_report
from linnet.analysis.runs import read_run
from linnet.cli.options import run_config
from linnet.cli.parser import LazyParser
from linnet.cli.train import add_task_options
from linnet.data.corpora import load_corpus
from linnet.models.generate import generate
from linnet.runs import checkpoints
from linnet.runs.config import RunConfig
from linnet.runs.errors import Mismatch, NotFinite
from linnet.runs.load import load
from linnet.runs.records import claim, read_config, read_metrics, read_result
from linnet.train.compare import plans, shared_task

SENTENCES = ("the linnet sings in the tree", "a light wing beats in the wind", "the wind is in the tree")
FAST = "--level char --hidden-size 12 --embedding-size 6 --num-layers 1 --batch 4 --length 8".split()  # noqa: SIM905
BRIEF = "--optimiser adam --lr 0.02 --steps 12 --evaluate-every 6 --log-every 3 --device cpu".split()  # noqa: SIM905


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "birds.txt"
    path.write_text("\n".join(SENTENCES[i * i % 3] for i in range(120)) + "\n", encoding="utf-8")
    return path


def arguments(text: Path, folder: Path, *more: str) -> list[str]:
    return [*("--corpus", "text", "--path", str(text), "--run-dir", str(folder)), *FAST, *BRIEF, *more]


@pytest.fixture(scope="module")
def run(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "birds"
    assert cli.main(["train", "lm", "--unit", "rnn", *arguments(text, folder)]) == 0
    return folder


def test_a_run_directory_has_it_all(run: Path):
    names = {path.name for path in run.iterdir()}
    files = {"config.json", "environment.json", "metrics.jsonl", "metrics.csv", "result.json", "report.html"}
    assert files | {"best", "last", "vocabulary.json"} <= names
    assert read_config(run).model.unit == "rnn"
    assert [row["step"] for row in read_metrics(run, "valid")] == [6, 12]
    result = read_result(run) or {}
    assert result["valid"]["loss"] < 3.5
    assert set(result["test"]) >= {"loss", "perplexity", "bpc"}
    assert json.loads((run / "environment.json").read_text())["packages"]["torch"]


def test_eval_gives_the_figures_of_the_run(run: Path, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["eval", str(run)]) == 0
    said = capsys.readouterr().out
    result = read_result(run) or {}
    assert f"valid: loss {result['valid']['loss']:.5g}" in said
    assert f"test: loss {result['test']['loss']:.5g}" in said
    assert cli.main(["eval", str(run), "--dynamic", "--dynamic-batch", "4", "--splits", "test"]) == 0
    assert re.fullmatch(r"test: loss \S+  perplexity \S+  bpc \S+  tokens 181\n", capsys.readouterr().out)


def test_eval_reads_another_text_with_the_vocabulary_of_the_run(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    other = tmp_path / "other.txt"
    other.write_text("the wind sings in the light tree\n" * 30)
    assert cli.main(["eval", str(run), "--path", str(other), "--splits", "all"]) == 0
    found = load(run).evaluate("all", path=str(other))
    assert f"all: loss {found['loss']:.5g}" in capsys.readouterr().out
    assert found["tokens"] == len(other.read_text()) - 1
    assert cli.main(["eval", str(run), "--path", str(other)]) == 0
    assert f"all: loss {found['loss']:.5g}" in capsys.readouterr().out
    other.write_text("the wind sings in the light tree")
    assert load(run).evaluate("all", path=str(other))["tokens"] == len(other.read_text())


def test_a_checkpoint_of_another_model_is_refused_with_both_fingerprints(
    run: Path, tmp_path: Path, text: Path, capsys: pytest.CaptureFixture[str]
):
    other = tmp_path / "other"
    assert cli.main(["train", "lm", "--unit", "lrn", *arguments(text, other), "--steps", "1"]) == 0
    (run / "config.json").rename(tmp_path / "kept.json")
    try:
        (run / "config.json").write_text((other / "config.json").read_text())
        assert cli.main(["generate", str(run)]) == Mismatch.exit_code
    finally:
        (tmp_path / "kept.json").rename(run / "config.json")
    assert re.search(r"weights is '\w{12}' there and '\w{12}' here", capsys.readouterr().err)


def test_generating_is_reproducible_and_streams(run: Path, capsys: pytest.CaptureFixture[str]):
    command = ["generate", str(run), "--prompt", "the ", "--tokens", "20", "--top-p", "0.9", "--seed"]
    texts = []
    for seed in ("1", "1", "2"):
        assert cli.main([*command, seed]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]
    assert texts[0].startswith("the ")
    assert len(texts[0]) == len("the ") + 20 + 1
    model, vocabulary = load(run).model, load(run).vocabulary
    pieces = list(generate(model, vocabulary, "the ", tokens=20, top_p=0.9))
    assert len(pieces) == 21
    assert "".join(pieces) + "\n" == texts[0]


def test_a_run_without_carry_generates_within_its_windows(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = tmp_path / "run"
    assert cli.main(["train", "lm", *arguments(text, folder), "--no-carry", "--steps", "1"]) == 0
    found = load(folder)
    config, model, vocabulary = found.config, found.model, found.vocabulary
    capsys.readouterr()
    assert cli.main(["generate", str(folder), "--tokens", "60"]) == 0
    within = "".join(generate(model, vocabulary, tokens=60, window=config.data.length))
    assert capsys.readouterr().out == within + "\n" != "".join(generate(model, vocabulary, tokens=60)) + "\n"
    assert cli.main(["eval", str(folder), "--dynamic"]) == 1
    assert "evaluate without --dynamic" in capsys.readouterr().err


# --------------------------------------------------------------------------------------- compare


def comparing(text: Path, folder: Path) -> list[str]:
    command = arguments(text, folder, "--units", "rnn", "lrn", "--budget", "1500")
    size = command.index("--hidden-size")
    return ["compare", *command[:size], *command[size + 2 :]]


class Calls(list):
    """The arguments of every call of a watched function."""

    def watch(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **given: Any) -> Any:
            self.append(arguments)
            return function(*arguments, **given)

        return watched


@pytest.fixture(scope="module")
def reads_and_pages() -> Iterator[tuple[Calls, Calls]]:
    reads, pages = Calls(), Calls()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("linnet.tasks.language.load_corpus", reads.watch(load_corpus))
        patch.setattr("linnet.cli.live_page.write_report", pages.watch(write_report))
        yield reads, pages


@pytest.fixture(scope="module")
def comparison(
    text: Path, tmp_path_factory: pytest.TempPathFactory, reads_and_pages: tuple[Calls, Calls]
) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "all"
    assert cli.main(comparing(text, folder)) == 0
    return folder


def test_a_comparison_reads_its_corpus_once(comparison: Path, reads_and_pages: tuple[Calls, Calls]):
    assert len(reads_and_pages[0]) == 1


def test_a_comparison_writes_its_page_from_the_first_validation_on(
    comparison: Path, reads_and_pages: tuple[Calls, Calls]
):
    shown = [[(run.name, run.result is not None) for run in runs] for _, runs, *_ in reads_and_pages[1]]
    assert shown[0] == [("rnn", False)]
    assert shown[1] == [("rnn", True)]
    assert shown[-1] == [("rnn", True), ("lrn", True)]


def test_a_comparison_measures_each_speed_alone_and_once(text: Path, comparison: Path):
    files = [comparison / unit / "speed.json" for unit in ("rnn", "lrn")]
    before = [path.read_text() for path in files]
    assert all(json.loads(content)["tokens_per_second"] > 0 for content in before)
    assert "measured after training, one model at a time" in (comparison / "report.html").read_text()
    assert cli.main(comparing(text, comparison)) == 0
    assert [path.read_text() for path in files] == before


def test_samples_of_a_comparison_continue_the_same_prompt(comparison: Path):
    task = load(comparison / "rnn").task
    following = task.vocabulary.decode(task.corpus.valid[200:264])
    prompt = " ".join(following.split()[:6])
    for unit in ("rnn", "lrn"):
        assert (comparison / unit / "sample.txt").read_text().startswith(prompt)


def test_a_comparison_keeps_to_its_budget(comparison: Path):
    for unit in ("rnn", "lrn"):
        result = read_result(comparison / unit) or {}
        assert result["parameters"] == pytest.approx(1500, rel=0.1)
        assert read_config(comparison / unit).model.unit == unit
        assert (comparison / unit / "sample.txt").read_text().strip()


def test_in_a_comparison_of_texts_nru_forgets_at_each_window(tmp_path: Path):
    """Its memory has nothing that bounds it."""
    config = RunConfig()
    made = list(plans(config, shared_task(config), ["nru", "lstm"], 2_500_000, tmp_path))
    assert [(config.model.unit, config.data.carry) for config, _ in made] == [("nru", False), ("lstm", True)]


@pytest.mark.parametrize(
    ("words", "carry"),
    [
        ("--unit nru", False),
        ("--unit eurnn", False),
        ("--unit nru --carry", True),
        ("--unit lrn", True),
        # As the paper has it.
        ("--recipe nru-ptb-char", True),
        ("--recipe nru-ptb-char --unit nru", True),
    ],
)
def test_units_whose_state_grows_start_each_window_from_zeros_unless_told_otherwise(words: str, carry: bool):
    command = LazyParser()
    add_task_options(command, "lm")
    assert run_config(command.parse_args(words.split()), "lm").data.carry is carry


@pytest.mark.parametrize(
    ("words", "lr"), [("--unit rnn", 0.001), ("--unit rnn --lr 0.01", 0.01), ("--unit lstm", 0.003)]
)
def test_an_rnn_has_a_lower_learning_rate_unless_told_otherwise(words: str, lr: float):
    command = LazyParser()
    add_task_options(command, "lm")
    assert run_config(command.parse_args(words.split()), "lm").optimiser.lr == lr


def test_a_path_is_that_of_a_text():
    command = LazyParser()
    add_task_options(command, "lm")
    assert run_config(command.parse_args(["--path", "book.txt"]), "lm").data.corpus == "text"


def test_the_report_is_one_page_that_needs_nothing_else(comparison: Path):
    content = (comparison / "report.html").read_text(encoding="utf-8")
    assert "http" not in content
    assert "<svg" in content
    assert "<script" not in content
    assert re.search(r"<td[^>]*>rnn</td><td[^>]*>[\d.]+</td>", content)
    assert "valid bits per character" in content
    assert "hidden_size" in content
    sample_text = (comparison / "lrn" / "sample.txt").read_text().strip()
    assert sample_text.split()[0] in content
    assert set(re.findall(r'(?:src|href)="(?!#)([^"]*)', content)) <= {"lens.html"}


def test_a_report_of_a_run_under_way_has_dashes(run: Path, tmp_path: Path):
    (tmp_path / "config.json").write_text((run / "config.json").read_text())
    (tmp_path / "metrics.jsonl").write_text((run / "metrics.jsonl").read_text())
    assert ">\N{EN DASH}</td>" in page([read_run(tmp_path, "under way")], "one < two")
    assert "one &lt; two" in page([read_run(tmp_path)], "one < two")


# --------------------------------------------------------------------------------------- answers


@pytest.mark.parametrize(
    ("words", "code", "answer"),
    [
        ("train lm --unit sri", 1, "no unit 'sri'; did you mean 'sru'?"),
        ("train lm --corpus kjw", 1, "no corpus 'kjw'; did you mean 'kjv'?"),
        ("train lm --recipe scrn-smal-nd-wt", 1, "did you mean 'scrn-small-nd-wt'?"),
        ("train lm --hiden-size 3", 2, "did you mean '--hidden-size'?"),
        ("train lm --optimiser adm", 2, "did you mean 'adam'?"),
        ("train lm --unit-options alpha", 2, "expected NAME=VALUE"),
        ("train lm --unit sru --unit-options alpha=1", 1, "SRU has no option 'alpha'"),
        ("train lm --epochs -1", 1, "epochs is at least 0; got -1"),
        (
            "train lm --config nowhere.json",
            1,
            "--config needs the config.json of a run; nowhere.json is not one",
        ),
        ("train lm --recipe zzz", 1, "no recipe 'zzz'; `linnet list recipes` has them all"),
        ("eval nowhere", 1, "nowhere is not a run: it has no config.json"),
        ("generate nowhere", 1, "nowhere is not a run"),
        ("search --ranges lr=1", 2, "expected NAME=LOW:HIGH"),
        ("search --sampler tpee", 1, "no sampler 'tpee'; did you mean 'tpe'?"),
        ("compare --units lsmt", 2, "did you mean 'lstm'?"),
    ],
)
def test_wrong_words_are_answered(
    words: str,
    code: int,
    answer: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    try:
        found = cli.main(words.split())
    except SystemExit as end:
        found = int(end.code or 0)
    assert found == code
    assert not list(tmp_path.iterdir())
    assert answer in capsys.readouterr().err


def test_a_recipe_is_changed_field_by_field():
    options = cli.parser().parse_args(
        [
            "train",
            "lm",
            "--recipe",
            "scrn-small-nd-wt",
            "--lr",
            "0.4",
            "--unit-options",
            "alpha=0.5",
            "--no-tied",
        ]
    )
    config = run_config(options, "lm")
    assert (config.optimiser.lr, config.model.tied, config.model.hidden_size) == (0.4, False, 240)
    assert config.model.unit_options == {"context_size": 40, "alpha": 0.5}
    other = cli.parser().parse_args(["train", "lm", "--recipe", "scrn-small-nd-wt", "--unit", "lstm"])
    assert run_config(other, "lm").model.unit_options == {}


def test_torchrun_takes_no_option_of_ours_for_its_own():
    """It reads what follows the program too, and takes the beginning of a name for the name."""
    from torch.distributed.run import get_args_parser

    theirs = [flag for action in get_args_parser()._actions for flag in action.option_strings]
    leaf = LazyParser()
    add_task_options(leaf, "lm")
    ours = [flag for flag in leaf.flags() if flag.startswith("--") and flag != "--help"]
    assert len(ours) > 60
    assert [flag for flag in ours if any(name.startswith(flag) for name in theirs)] == []


def test_overwrite_removes_runs_only(run: Path, tmp_path: Path, text: Path):
    (tmp_path / "precious").write_text("x")
    command = ["train", "lm", "--unit", "rnn", *arguments(text, tmp_path, "--overwrite")]
    assert cli.main(command) == 1
    assert (tmp_path / "precious").exists()


def test_a_run_that_another_process_trains_is_not_overwritten(text: Path, tmp_path: Path):
    command = ["train", "lm", "--unit", "rnn", *arguments(text, tmp_path / "run")]
    assert cli.main(command) == 0
    with claim(tmp_path / "run"):
        assert cli.main([*command, "--overwrite"]) == Mismatch.exit_code
    assert (tmp_path / "run" / "result.json").exists()
    assert cli.main([*command, "--overwrite"]) == 0


def test_a_comparison_overwrites_its_runs_and_nothing_else(text: Path, tmp_path: Path):
    (tmp_path / "precious").write_text("x")
    words = arguments(
        text, tmp_path, "--overwrite", "--units", "rnn", "--budget", "1500", "--sample-tokens", "3"
    )
    command = ["compare", *words]
    del command[command.index("--hidden-size") : command.index("--hidden-size") + 2]
    assert cli.main(command) == 0
    (tmp_path / "rnn" / "result.json").write_text("{}")
    assert cli.main(command) == 0
    assert (read_result(tmp_path / "rnn") or {})["step"] == 12
    assert (tmp_path / "precious").exists()


def test_eval_on_another_corpus_leaves_the_path_of_the_first(run: Path, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["eval", str(run), "--corpus", "ptb", "--level", "word", "--data-dir", str(run)]) != 0
    assert "path is for the corpus 'text'" not in capsys.readouterr().err


def test_every_file_of_a_run_can_be_read_by_those_who_may_read_the_others(run: Path):
    modes = {oct(path.stat().st_mode & 0o777) for path in run.iterdir() if path.suffix in (".json", ".jsonl")}
    assert len(modes) == 1


def test_a_search_that_found_nothing_says_so(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = arguments(text, tmp_path, "--unit", "rnn", "--runs", "1", "--ranges", "lr=1e38:2e38")
    assert cli.main(["search", *words, "--optimiser", "sgd", "--lr", "1"]) == NotFinite.exit_code
    assert "no run in" in capsys.readouterr().err


def test_a_weights_file_is_safetensors(run: Path):
    assert set(checkpoints.read_weights(run / "best")) >= {"embedding.weight"}


def test_listing_imports_no_trainer():
    code = (
        "import sys; from linnet.cli import main; main(['list', '--all']); "
        "print([n for n in ('lightning_fabric', 'optuna', 'rich', 'matplotlib') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "scrn-small-nd-wt " in done.stdout
    assert "\nkjv " in done.stdout
