"""A stranger's run directory: whatever is in it, the commands answer with the name of the file."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import toy  # noqa: F401, makes the kind of task known

from linnet import cli
from linnet.analysis.report import page
from linnet.analysis.runs import read_run
from linnet.runs.config import RunConfig, override
from linnet.runs.errors import Damaged, Stopped
from linnet.runs.untrusted import harmless
from linnet.train import search
from linnet.train.search import Plan

ESCAPES = "\x1b[31mred\x1b[0m \u202etxt\u202c \x9b1m \x07"
TRAIN = [
    *("train", "lm", "--unit", "rnn", "--corpus", "text", "--level", "char", "--hidden-size", "8"),
    *("--embedding-size", "4", "--num-layers", "1", "--batch", "4", "--length", "8", "--device", "cpu"),
    *("--evaluate-every", "4", "--log-every", "2", "--optimiser", "adam", "--lr", "0.01"),
]


@pytest.fixture(autouse=True)
def no_hanging() -> Iterator[None]:
    """What waits for a pipe or reads a device to its end would wait forever."""

    def stop(*_: object) -> None:
        raise AssertionError("it hangs")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(60)
    yield
    signal.alarm(0)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    lines = (f"the {ESCAPES} bird number {number % 9}" for number in range(120))
    (folder / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert cli.main(words(folder / "run", 8)) == 0
    return folder / "run"


@pytest.fixture
def run(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(made.parent)
    shutil.copytree(made, tmp_path / "run")
    # It is to go on, and there is one checkpoint to go on from.
    (tmp_path / "run" / "result.json").unlink()
    shutil.rmtree(tmp_path / "run" / "last.old")
    (tmp_path / "victim").write_text("precious")
    return tmp_path / "run"


def words(folder: Path, steps: int) -> list[str]:
    return [*TRAIN, "--path", "text.txt", "--steps", str(steps), "--run-dir", str(folder)]


def change(checkpoint: Path, how: Callable[[dict[str, Any]], Any]) -> None:
    """Change a manifest and seal it again, as whoever knows this code can."""
    place = checkpoint / "manifest.json"
    manifest = json.loads(place.read_text())
    del manifest["seal"]
    how(manifest)
    text = json.dumps(manifest, sort_keys=True)
    manifest["seal"] = hashlib.sha256(text.encode()).hexdigest()
    place.write_text(json.dumps(manifest))


def replace_file(checkpoint: Path, name: str, content: bytes) -> None:
    (checkpoint / name).write_bytes(content)
    code = hashlib.sha256(content).hexdigest()
    change(checkpoint, lambda manifest: manifest["files"].update({name: code}))


def refused(command: list[str], name: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The command ends with an error of its own, which names the file."""
    capsys.readouterr()
    assert cli.main(command) not in (0, None)
    said = capsys.readouterr().err
    assert name in said, said
    return said


COMMANDS: dict[str, Callable[[Path], list[str]]] = {
    "train": lambda run: words(run, 12),
    "eval": lambda run: ["eval", str(run)],
    "eval last": lambda run: ["eval", str(run), "--checkpoint", "last"],
    "generate": lambda run: ["generate", str(run), "--tokens", "3"],
    "plot": lambda run: ["plot", str(run), "--what", "loss"],
    "plot folder": lambda run: ["plot", str(run.parent), "--what", "validation"],
    "config": lambda run: [*words(run.parent / "new", 12), "--config", str(run / "config.json")],
}
DEEP = "[" * 100_000 + "]" * 100_000
BROKEN_JSON = {
    "nothing": "",
    "half": '{"task": "lm", "da',
    "a list": "[1, 2]",
    "a number": "3",
    "deep": DEEP,
    "deeper than it may": '{"a": ' * 90 + "1" + "}" * 90,
    "not UTF-8": b"\xff\xfe{}",
    "a large number": "1" * 10_000,
}


def put(path: Path, content: str | bytes) -> None:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.mark.parametrize("command", COMMANDS)
def test_settings_that_are_malformed_are_named(run: Path, command: str, capsys: pytest.CaptureFixture[str]):
    given = COMMANDS[command](run)
    known = json.loads((run / "config.json").read_text())
    wrong = [
        {"task": ["lm"]},
        {"task": "nothing"},
        {**known, "data": 3},
        {**known, "loop": None},
        {**known, "loop": {"seed": "one"}},
        {**known, "model": {**known["model"], "hidden_size": -1}},
        {**known, "model": {**known["model"], "num_layers": 10**9}},
        {**known, "model": {**known["model"], "unit": "\x1b[31m"}},
        {**known, "model": {**known["model"], "unit_options": [1]}},
        {**known, "optimiser": {"lr": float("nan")}},
        {**known, "optimiser": {"betas": [0.5]}},
    ]
    for content in (*BROKEN_JSON.values(), *map(json.dumps, wrong)):
        put(run / "config.json", content)
        assert "\x1b" not in refused(given, "config.json", capsys)


def test_a_file_of_settings_is_not_read_to_its_end(run: Path, capsys: pytest.CaptureFixture[str]):
    with open(run / "config.json", "r+b") as file:
        file.truncate(10 * 2**30)
    for name in ("train", "eval", "generate", "plot"):
        assert "10,737,418,240 bytes" in refused(COMMANDS[name](run), "config.json", capsys)


@pytest.mark.parametrize("size", [10**6, 10**9, 10**12, 10**30])
def test_a_model_of_any_size_takes_no_memory(run: Path, size: int, capsys: pytest.CaptureFixture[str]):
    known = json.loads((run / "config.json").read_text())
    known["model"]["hidden_size"] = size
    put(run / "config.json", json.dumps(known))
    for name in ("eval", "generate"):
        assert cli.main(COMMANDS[name](run)) != 0
    # Even where the checkpoint agrees.
    change(run / "best", lambda manifest: manifest["settings"].update(known))
    assert cli.main(COMMANDS["generate"](run)) != 0
    assert "config.json" in capsys.readouterr().err or size <= 10**9


@pytest.mark.parametrize("command", ["plot", "plot folder"])
def test_rows_and_figures_that_are_malformed_are_named(
    run: Path, command: str, capsys: pytest.CaptureFixture[str]
):
    row = {"step": 1, "epoch": 1, "split": "train", "loss": 1.0}
    wrong = [{**row, **more} for more in ({"step": "x"}, {"step": -1}, {"loss": "y"}, {"split": 3})]
    wrong += [{**row, "loss": 10**400}, {**row, "step": 10**30}, {**row, "lr": [1]}, {"step": 1}, [], 7]
    for line in (*map(json.dumps, wrong), '{"step": 1', DEEP):
        put(run / "metrics.jsonl", json.dumps(row) + "\n" + line + "\n")
        refused(COMMANDS[command](run), "metrics.jsonl, line 2", capsys)
    put(run / "metrics.jsonl", json.dumps(row) + "\n")
    for name in ("environment.json", "result.json"):
        for content in BROKEN_JSON.values():
            put(run / name, content)
            refused(COMMANDS[command](run), name, capsys)
        put(
            run / name, '{"packages": [], "step": {}, "valid": 3, "started": 1, "threads": 1, "processor": 1}'
        )
        refused(COMMANDS[command](run), name, capsys)
        (run / name).unlink()


@pytest.mark.parametrize("command", ["train", "eval", "generate"])
def test_a_vocabulary_that_is_malformed_is_named(run: Path, command: str, capsys: pytest.CaptureFixture[str]):
    given = COMMANDS[command](run)
    fields = {"level": "char", "words": "blanks", "lowercase": False, "tokens": ["a", "b"], "merges": []}
    wrong = [{**fields, **more} for more in ({"tokens": "ab"}, {"tokens": [1]}, {"tokens": []}, {"more": 1})]
    wrong += [{**fields, "level": "byte", "tokens": ["ab"]}, {**fields, "level": "bpe", "merges": ["a b"]}]
    for content in (*BROKEN_JSON.values(), *map(json.dumps, (*wrong, fields))):
        put(run / "vocabulary.json", content)
        refused(given, "vocabulary.json", capsys)


# -------------------------------------------------------------------------------------- checkpoints


def set_in(*path: str) -> Callable[[Any], Callable[[dict], None]]:
    def with_value(value: Any) -> Callable[[dict], None]:
        def how(manifest: dict) -> None:
            for name in path[:-1]:
                manifest = manifest[name]
            manifest[path[-1]] = value

        return how

    return with_value


STEP, PLACE, FILES = set_in("step"), set_in("position", "batch"), set_in("files")
MANIFESTS = {
    **{f"step {value!r}": STEP(value) for value in ("x", -1, float("inf"), float("nan"), True, None, 10**30)},
    **{f"batch {value!r}": PLACE(value) for value in ("x", -1, 0.5, [1], 10**30)},
    "history": set_in("position", "history")(["a"]),
    "history of NaN": set_in("position", "history")([float("nan")]),
    "position": set_in("position")([]),
    "another field": set_in("position", "more")(1),
    "rows": set_in("rows")([-5, 3]),
    "rows 2": set_in("rows")("ab"),
    "digests": set_in("rows_sha256")(3),
    "world": set_in("world")(10**12),
    "guard": set_in("guard")([]),
    "settings": set_in("settings")({"task": 3}),
    "files": FILES([]),
    "no files": FILES({}),
    "no name": set_in("name")(3),
}


@pytest.mark.parametrize("case", MANIFESTS)
def test_a_manifest_with_wrong_values_is_named(run: Path, case: str, capsys: pytest.CaptureFixture[str]):
    given = words(run, 12)
    change(run / "last", MANIFESTS[case])
    refused(given, "last/manifest.json", capsys)


@pytest.mark.parametrize("value", [3, {}, {"loss": "x"}, {"loss": True}])
def test_the_figures_of_the_best_are_numbers(run: Path, value: Any, capsys: pytest.CaptureFixture[str]):
    change(run / "best", set_in("metrics")(value))
    for command in ("train", "eval", "generate"):
        refused(COMMANDS[command](run), "best/manifest.json", capsys)


@pytest.mark.parametrize("name", ["../../victim", "/dev/zero", "..", "a/b", "a\\b", "", "nul\0", "\x1b[31m"])
def test_names_in_a_manifest_are_those_of_files_beside_it(
    run: Path, name: str, capsys: pytest.CaptureFixture[str]
):
    change(run / "best", lambda manifest: manifest["files"].update({name: "0" * 64}))
    for command in ("eval", "generate"):
        refused(COMMANDS[command](run), "best/manifest.json", capsys)
    given = words(run, 12)
    change(run / "last", lambda manifest: manifest["files"].update({name: "0" * 64}))
    refused(given, "last/manifest.json", capsys)


@pytest.mark.parametrize("name", ["model.safetensors", "manifest.json"])
@pytest.mark.parametrize("what", ["/dev/zero", "pipe", "victim"])
def test_what_is_no_file_is_not_opened(run: Path, name: str, what: str, capsys: pytest.CaptureFixture[str]):
    (run / "best" / name).unlink()
    if what == "pipe":
        os.mkfifo(run / "best" / name)
    else:
        (run / "best" / name).symlink_to(run.parent / what)
    for command in ("eval", "generate"):
        refused(COMMANDS[command](run), f"best/{name}", capsys)
    refused(words(run, 12), "best", capsys)


UNREADABLE = {
    "nothing": b"",
    "noise": b"\xff" * 64,
    "no weights": b"\x08" + b"\0" * 7 + b"{}      ",
    "no zip": b"PK\x03\x04 no",
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_weights_that_cannot_be_read_are_named(run: Path, case: str, capsys: pytest.CaptureFixture[str]):
    replace_file(run / "best", "model.safetensors", UNREADABLE[case])
    for command in ("eval", "generate"):
        refused(COMMANDS[command](run), "best/model.safetensors", capsys)
    refused(words(run, 12), "best", capsys)


@pytest.mark.parametrize("name", ["model.safetensors", "state.pt", "rank-0.pt"])
@pytest.mark.parametrize("case", UNREADABLE)
def test_states_that_cannot_be_read_are_named(
    run: Path, name: str, case: str, capsys: pytest.CaptureFixture[str]
):
    replace_file(run / "last", name, UNREADABLE[case])
    refused(words(run, 12), f"last/{name}", capsys)


def test_a_state_of_another_run_is_named(run: Path, capsys: pytest.CaptureFixture[str]):
    for name in ("state.pt", "rank-0.pt"):
        content = (run / "last" / name).read_bytes()
        other = (run / "last" / ("rank-0.pt" if name == "state.pt" else "state.pt")).read_bytes()
        replace_file(run / "last", name, other)
        refused(words(run, 12), name, capsys)
        replace_file(run / "last", name, content)


def test_a_state_is_not_unpacked_to_more_than_it_has(run: Path, capsys: pytest.CaptureFixture[str]):
    given = words(run, 12)
    with zipfile.ZipFile(run / "bomb", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("state/data.pkl", b"\0" * 2**24)
    replace_file(run / "last", "state.pt", (run / "bomb").read_bytes())
    assert "unpacks to more than it has" in refused(given, "last/state.pt", capsys)


# ------------------------------------------------------------------------------------------- links

LINKED = ["metrics.jsonl", "metrics.csv", "speed.jsonl", "config.json", "vocabulary.json", ".lock"]


@pytest.mark.parametrize("name", [*LINKED, "result.json", "last.new", "best.new", "last.old"])
def test_nothing_is_written_read_or_removed_through_a_link(
    run: Path, name: str, capsys: pytest.CaptureFixture[str]
):
    given = words(run, 12)
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(run.parent / "victim")
    refused(given, name, capsys)
    assert (run.parent / "victim").read_text() == "precious"


def test_files_that_are_replaced_are_not_written_through_a_link(run: Path):
    given = words(run, 12)
    for name in ("config.json", "environment.json", "report.html"):
        (run / f".{name}.{os.getpid()}").symlink_to(run.parent / "victim")
    (run / "report.html").unlink()
    (run / "report.html").symlink_to(run.parent / "victim")
    assert cli.main(given) == 0
    assert (run.parent / "victim").read_text() == "precious"
    assert not (run / "report.html").is_symlink()


def test_a_run_may_itself_be_reached_through_a_link(run: Path):
    given = words(run, 12)
    run.rename(run.with_name("elsewhere"))
    run.symlink_to(run.with_name("elsewhere"))
    assert cli.main(given) == 0
    assert cli.main(COMMANDS["eval"](run)) == 0


def test_pictures_are_not_written_through_a_link(run: Path, capsys: pytest.CaptureFixture[str]):
    (run.parent / "away").mkdir()
    (run / "plots").symlink_to(run.parent / "away")
    refused(COMMANDS["plot"](run), "plots", capsys)
    assert not list((run.parent / "away").iterdir())


def test_overwriting_a_damaged_run_removes_it_and_no_more(run: Path):
    given = words(run, 12)
    (run / "config.json").unlink()
    shutil.rmtree(run / "last")
    (run / "last").symlink_to(run.parent)
    assert cli.main([*given, "--overwrite"]) == 0
    assert (run.parent / "victim").read_text() == "precious"


# ---------------------------------------------------------------------------------------- what is shown


def test_controls_are_shown_and_not_obeyed(run: Path, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["generate", str(run), "--prompt", ESCAPES, "--tokens", "300"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("\\x1b[31mred\\x1b[0m \\u202etxt\\u202c \\x9b1m \\x07")
    assert not set(said) & set("\x1b\x9b\x07\u202e\u202c")
    assert harmless("a\ttab, a\nline, é and ש stay; \r\ud800\x7f do not") == (
        "a\ttab, a\nline, é and ש stay; \\r\\ud800\\x7f do not"
    )


def test_a_page_holds_no_code_of_a_run(run: Path):
    code = "<script>alert(1)</script>"
    (run / "sample.txt").write_text(code)
    environment = json.loads((run / "environment.json").read_text())
    known = {**environment, "processor": code, "started": code, "threads": code, "packages": {code: code}}
    (run / "environment.json").write_text(json.dumps(known))
    config = json.loads((run / "config.json").read_text())
    config["data"]["path"] = config["data"]["corpus"] = f"{code} -->{code}]]>{code} $\\x$"
    (run / "config.json").write_text(json.dumps(config))
    row = json.dumps({"step": 1, "epoch": 1, "split": "valid", "loss": 1.0, code: 2.0})
    (run / "metrics.jsonl").write_text(f"{row}\n")
    made = page([read_run(run, code)], code)
    assert code not in made
    assert "&lt;script&gt;" in made


def test_the_samples_of_a_comparison_are_those_of_its_models(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    at = TRAIN.index("--hidden-size")
    given = [*TRAIN[4:at], *TRAIN[at + 2 :], "--path", "text.txt", "--steps", "4", "--units", "rnn"]
    given = [
        "compare",
        *given,
        "--budget",
        "500",
        "--sample-tokens",
        "20",
        "--run-dir",
        str(tmp_path / "both"),
    ]
    assert cli.main(given) == 0
    said = capsys.readouterr().out.split("writes:")[1]
    assert not set(said) & set(ESCAPES) - set(harmless(ESCAPES))
    place = tmp_path / "both" / "rnn" / "sample.txt"
    content = place.read_text()
    place.unlink()
    place.symlink_to(tmp_path / "victim")
    assert cli.main(given) == 0
    assert capsys.readouterr().out.split("writes:")[1] == said
    assert (place.read_text(), (tmp_path / "victim").read_text()) == (content, "precious")
    put(tmp_path / "both" / "rnn" / "result.json", '{"step": 4}')
    refused(given, "result.json", capsys)


# ------------------------------------------------------------------------------------------ search


@pytest.fixture
def study(tmp_path: Path) -> Path:
    search.search(settings(), tmp_path / "study", Plan({"lr": (0.1, 2.0)}, runs=2))
    (tmp_path / "victim").write_text("precious")
    return tmp_path / "study"


def settings() -> RunConfig:
    short = {"epochs": 1, "steps": 3, "device": "cpu", "checkpoint_seconds": 0.0}
    return override(RunConfig(task="toy"), short)


def harm_journal(study: Path) -> None:
    log = study / "study.log"
    log.write_text(log.read_text().replace('"op_code":4', '"op_code":"4"', 1))


def harm_loss(study: Path) -> None:
    place = study / "0001" / "result.json"
    result = json.loads(place.read_text())
    del result["seal"]
    result["valid"]["loss"] += 1
    place.write_text(json.dumps(result))


def link(name: str) -> Callable[[Path], None]:
    def harm(study: Path) -> None:
        (study / name).unlink(missing_ok=True)
        (study / name).symlink_to(study.parent / "victim")

    return harm


STUDIES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a journal that is none": (lambda study: (study / "study.log").write_text("x\n"), "study.log"),
    "a line that is none": (harm_journal, "study.log, line"),
    "entries that make no study": (
        lambda study: (study / "study.log").write_text('{"op_code": 4, "worker_id": "x"}\n'),
        "study.log",
    ),
    "another code": (lambda study: (study / "study.id").write_text("\x1b"), "study.id"),
    "another loss": (harm_loss, "0001/result.json"),
    **{f"{name} is a link": (link(name), name) for name in ("study.log", "study.id", ".turn", ".0002.lock")},
}


@pytest.mark.parametrize("case", STUDIES)
def test_a_study_that_is_damaged_is_named(study: Path, case: str):
    harm, name = STUDIES[case]
    harm(study)
    with pytest.raises((Stopped, ValueError), match=name.replace(".", r"\.")):
        search.search(settings(), study, Plan({"lr": (0.1, 2.0)}, runs=3))
    assert (study.parent / "victim").read_text() == "precious"


def test_damage_has_an_exit_code_of_its_own():
    assert Damaged.exit_code == 6
