"""Runs whose results are copied to a store, and read from there."""

from __future__ import annotations

import shutil
import sys
import uuid
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import toy  # noqa: F401, the kind of task

import linnet
from linnet import cli
from linnet.analysis.runs import find_runs
from linnet.cli.folders import records_of
from linnet.runs import stored
from linnet.runs.config import RunConfig, override
from linnet.runs.errors import Damaged, Mismatch
from linnet.runs.records import read_result
from linnet.runs.remote import Place, StoreFailed
from linnet.runs.stored import StoredRun
from linnet.train import search
from linnet.train.loop import train
from linnet.train.progress import Silent
from linnet.train.search import Plan

SETTINGS = {"optimiser": "sgd", "clip": 0.0, "epochs": 3, "device": "cpu", "checkpoint_seconds": 0.0}


def config(**given: Any) -> RunConfig:
    return override(RunConfig(task="toy"), {**SETTINGS, **given})


@pytest.fixture(params=["memory", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    name = uuid.uuid4().hex
    return f"memory://{name}/run" if request.param == "memory" else f"file://{tmp_path}/{name}/run"


@pytest.fixture
def memory() -> str:
    return f"memory://{uuid.uuid4().hex}/run"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without a store."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    train(config(), folder)
    return folder


def metrics(folder: Path) -> bytes:
    return (folder / "metrics.jsonl").read_bytes()


class Begun(Silent):
    """At which update a run begins."""

    done = -1

    def begin(self, parameters: int, done: int, total: int | None) -> None:
        self.done = done


class Stop(BaseException):
    """Ends a run."""


def stop_after(validations: int) -> Any:
    def validated(costs: Sequence[float]) -> None:
        if len(costs) == validations:
            raise Stop

    return validated


# ----------------------------------------------------------------------------- there and back


def test_a_run_in_a_store_is_loaded_by_its_url(url: str, tmp_path: Path, whole: Path):
    result = train(config(store=url), tmp_path / "run")
    assert metrics(tmp_path / "run") == metrics(whole)
    there = Place(url)
    for name in ("config.json", "environment.json", "metrics.jsonl", "result.json"):
        assert there.read(name) == (tmp_path / "run" / name).read_bytes()
    assert there.read("last.zip") is None
    shutil.rmtree(tmp_path / "run")
    loaded = linnet.load(url)
    assert loaded.evaluate("test") == result["test"]
    assert loaded.step == linnet.load(whole).step


def test_a_run_is_resumed_from_a_store_on_an_empty_machine(url: str, tmp_path: Path, whole: Path):
    given = config(store=url, store_checkpoints=True)
    with pytest.raises(Stop):
        train(given, tmp_path / "first", validated=stop_after(2))
    assert read_result(stored.fetch_records(url)) is None
    begun = Begun()
    train(given, tmp_path / "second", begun)
    assert begun.done == 2 * 12
    assert metrics(tmp_path / "second") == metrics(whole)
    assert Place(url).read("metrics.jsonl") == metrics(whole)
    again = Begun()
    train(given, tmp_path / "third", again)
    assert again.done == -1
    assert metrics(tmp_path / "third") == metrics(whole)


def test_without_checkpoints_a_run_starts_again_and_a_finished_one_does_not(
    memory: str, tmp_path: Path, whole: Path, caplog: pytest.LogCaptureFixture
):
    with pytest.raises(Stop):
        train(config(store=memory), tmp_path / "first", validated=stop_after(2))
    begun = Begun()
    result = train(config(store=memory), tmp_path / "second", begun)
    assert (begun.done, metrics(tmp_path / "second")) == (0, metrics(whole))
    assert "has no checkpoint of the run, which starts from its beginning" in caplog.text
    for _ in range(2):
        again = Begun()
        assert train(config(store=memory), tmp_path / "third", again) == result
        assert again.done == -1
    assert linnet.load(tmp_path / "third").step == linnet.load(whole).step


def test_a_store_has_what_is_best_while_a_run_trains(memory: str, tmp_path: Path):
    steps = []

    def validated(costs: Sequence[float]) -> None:
        steps.append(linnet.load(memory).step)

    train(config(store=memory), tmp_path / "run", validated=validated)
    assert steps[0] == 12
    assert len(steps) == 3


def test_what_did_not_change_is_not_sent_again(memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    train(config(store=memory), tmp_path / "run")
    (tmp_path / "run" / "sample.txt").write_text("new")
    sent: list[str] = []
    put = Place.put
    monkeypatch.setattr(Place, "put", lambda self, name, file: (sent.append(name), put(self, name, file)))
    StoredRun(memory).send(tmp_path / "run")
    assert sent == ["sample.txt"]


def test_the_runs_of_a_search_are_stored_by_their_names(
    memory: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    plan = Plan({"lr": (0.1, 2.0)}, runs=2)
    search.search(config(store=memory, epochs=1), tmp_path / "study", plan)
    assert Place(memory).folders() == ["0000", "0001"]
    runs = find_runs([records_of(memory)])
    assert [run.name for run in runs] == ["0000", "0001"]
    assert all(run.result for run in runs)
    assert cli.main(["runs", memory.rpartition("/")[0]]) == 0
    shown = capsys.readouterr().out
    assert [line.split()[:2] for line in shown.splitlines()[1:]] == [
        ["run/0000", "finished"],
        ["run/0001", "finished"],
    ]


def test_commands_read_a_run_by_its_url(memory: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    result = train(config(store=memory), tmp_path / "run")
    assert cli.main(["eval", memory, "--splits", "test"]) == 0
    assert f"loss {result['test']['loss']:.5g}" in capsys.readouterr().out
    assert cli.main(["eval", f"{memory}/nowhere"]) == 1
    assert "nowhere is not a run: it has no stored.json" in capsys.readouterr().err


def test_a_run_that_is_overwritten_is_overwritten_in_its_store(memory: str, tmp_path: Path):
    from linnet.cli.folders import overwrite

    train(config(store=memory), tmp_path / "run")
    other = config(store=memory, lr=0.5)
    with pytest.raises(Mismatch, match=r"holds another run: in config\.json lr was"):
        train(other, tmp_path / "other")
    overwrite(tmp_path / "run", other)
    assert Place(memory).read("result.json") is None
    train(other, tmp_path / "run")
    assert linnet.load(memory).config.optimiser.lr == 0.5


# --------------------------------------------------------------------------------- whole files


def test_a_reader_never_sees_half_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    place = Place(f"file://{tmp_path}/run")
    place.write("a", b"old")

    def half(path: str, content: bytes, **options: Any) -> None:
        Path(path).write_bytes(content[:1])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(place.store, "pipe_file", half)
    with pytest.raises(StoreFailed, match=r"run cannot be written: OSError: \[Errno 28\] No space left"):
        place.write("a", b"new")
    assert place.read("a") == b"old"
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["a"]


def test_a_checkpoint_of_a_store_has_only_files_that_a_run_writes(tmp_path: Path):
    def packed(name: str, how: int = zipfile.ZIP_STORED) -> Path:
        with zipfile.ZipFile(tmp_path / "best.zip", "w", how) as archive:
            archive.writestr(name, b"0" * 1000)
        return tmp_path / "best.zip"

    for name in ("../evil", "evil.py", "model.safetensors/../../evil"):
        with pytest.raises(Damaged, match="which is not a file of a checkpoint"):
            stored.unpack(packed(name), tmp_path / "run", "best", "s3://a/best.zip")
    with pytest.raises(Damaged, match="is compressed in it"):
        stored.unpack(packed("state.pt", zipfile.ZIP_DEFLATED), tmp_path / "run", "best", "s3://a/best.zip")
    (tmp_path / "best.zip").write_bytes(b"nothing")
    with pytest.raises(Damaged, match="not an archive of a checkpoint"):
        stored.unpack(tmp_path / "best.zip", tmp_path / "run", "best", "s3://a/best.zip")


# ------------------------------------------------------------------------------ stores that fail


class Failing:
    """Stands in for Place.put, which fails while `fails` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.fails, self.put = False, Place.put
        monkeypatch.setattr(Place, "put", lambda place, *given: self(place, *given))
        monkeypatch.setattr(stored, "PAUSE", 0.0)
        monkeypatch.setattr(stored, "REST", 0)

    def __call__(self, place: Place, name: str, file: Path) -> None:
        if self.fails:
            raise StoreFailed(f"{place} cannot be written: it is away")
        self.put(place, name, file)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Failing:
    return Failing(monkeypatch)


def test_a_store_that_fails_for_a_while_does_not_end_the_run(
    memory: str, tmp_path: Path, whole: Path, failing: Failing, caplog: pytest.LogCaptureFixture
):
    def validated(costs: Sequence[float]) -> None:
        failing.fails = len(costs) < 3

    train(config(store=memory, epochs=4), tmp_path / "run", validated=validated)
    assert caplog.text.count("it is away. The run goes on, and is copied there later") == 1
    assert "has a copy of the run again" in caplog.text
    assert Place(memory).read("metrics.jsonl") == metrics(tmp_path / "run")


def test_a_run_whose_store_fails_to_the_end_is_copied_by_the_same_command(
    memory: str, tmp_path: Path, whole: Path, failing: Failing, caplog: pytest.LogCaptureFixture
):
    def validated(costs: Sequence[float]) -> None:
        failing.fails = True

    result = train(config(store=memory), tmp_path / "run", validated=validated)
    assert "does not have all of the run in" in caplog.text
    assert Place(memory).read("result.json") is None
    failing.fails = False
    assert train(config(store=memory), tmp_path / "run") == result
    assert linnet.load(memory).evaluate("test") == result["test"]


def test_after_a_failure_a_store_is_left_for_a_while(
    memory: str, tmp_path: Path, failing: Failing, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(stored, "REST", 1e9)
    train(config(), tmp_path / "run")
    run, failing.fails = StoredRun(memory), True
    assert not run.try_to_send(tmp_path / "run")
    failing.fails = False
    assert not run.try_to_send(tmp_path / "run")
    run.send_at_the_end(tmp_path / "run")
    assert Place(memory).read("result.json") is not None


def test_a_store_that_cannot_be_written_is_named_before_training(tmp_path: Path):
    (tmp_path / "file").write_text("no folder")
    begun = Begun()
    with pytest.raises(StoreFailed, match=r"file/run cannot be written: .*(NotADirectory|FileExists)Error"):
        train(config(store=f"file://{tmp_path}/file/run"), tmp_path / "run", begun)
    assert begun.done == -1


def test_a_store_that_is_unknown_or_without_driver_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ValueError, match="no protocol of fsspec 's4'; did you mean 's3'"):
        Place("s4://bucket/run")
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(ImportError, match=r"s3://bucket/run needs a driver that is not installed: .*s3fs"):
        Place("s3://bucket/run")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(ImportError, match=r"a store such as memory.* pip install '.*\[store\]'"):
        Place("memory://run")
    assert not (tmp_path / "run").exists()


def test_a_password_in_a_url_is_not_shown():
    assert str(Place("memory://me:secret@host/run")) == "memory://me:***@host/run"


# ------------------------------------------------------------------------------------------- s3


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket of a server on loopback that speaks the protocol of S3."""
    pytest.importorskip("s3fs", reason="needs s3fs")
    server = pytest.importorskip("moto.server", reason="needs moto[s3,server]")
    import s3fs

    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    s3fs.S3FileSystem.clear_instance_cache()
    s3fs.S3FileSystem().mkdir("bucket")
    yield "s3://bucket"
    s3fs.S3FileSystem.clear_instance_cache()
    running.stop()


def test_a_run_is_resumed_from_s3(bucket: str, tmp_path: Path, whole: Path):
    given = config(store=f"{bucket}/runs/one", store_checkpoints=True)
    with pytest.raises(Stop):
        train(given, tmp_path / "first", validated=stop_after(2))
    begun = Begun()
    result = train(given, tmp_path / "second", begun)
    assert (begun.done, metrics(tmp_path / "second")) == (2 * 12, metrics(whole))
    assert linnet.load(f"{bucket}/runs/one").evaluate("test") == result["test"]
    assert Place(f"{bucket}/runs").folders() == ["one"]
    with pytest.raises(StoreFailed, match=r"s3://none/run cannot be written: .*bucket does not exist"):
        train(config(store="s3://none/run"), tmp_path / "third")
