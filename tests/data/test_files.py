"""Files: the places in their order, packed or plain, checked, and fetched from a home on this machine."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import sys
import tarfile
import threading
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from linnet.data.errors import DataError, MissingDataError
from linnet.data.files import File, bounded, check, downloads, places, read_any

CONTENTS = b"in the beginning\n"
SUM = "sha256:" + hashlib.sha256(CONTENTS).hexdigest()
TRAIN = File("train.txt", SUM, also=("old/train.in",))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test reads or writes this machine's own cache."""
    monkeypatch.setenv("LINNET_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LINNET_DATA", raising=False)
    return tmp_path / "cache" / "data"


def put(path: Path, contents: bytes = CONTENTS) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(contents)
    return path


def label(value: object) -> str:
    """Packed files hold the time at which they were made: not a name that two processes agree on."""
    return f"{len(value)} bytes" if isinstance(value, bytes) else str(value)


@pytest.mark.parametrize(
    ("name", "contents"),
    [
        ("train.txt", CONTENTS),
        ("train.txt.gz", gzip.compress(CONTENTS)),
        ("train.txt.xz", lzma.compress(CONTENTS)),
        ("old/train.in", CONTENTS),
        ("mine/train.txt.gz", gzip.compress(CONTENTS)),
        ("other/train.txt", CONTENTS),
    ],
    ids=label,
)
def test_a_file_is_found_packed_or_plain_alone_or_in_its_folder(tmp_path: Path, name: str, contents: bytes):
    path = put(tmp_path / "data" / name, contents)
    found = read_any([TRAIN], ["mine", "other"], tmp_path / "data")
    assert (found.file, found.path.resolve(), found.contents) == (TRAIN, path, CONTENTS)


def test_places_are_searched_in_order(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LINNET_DATA", str(tmp_path / "environment"))
    argument = tmp_path / "argument"
    argument.mkdir()
    assert places(argument) == [argument, tmp_path / "environment", cache]
    for place in (cache, tmp_path / "environment", argument):
        put(place / "mine" / "train.txt")
        assert read_any([TRAIN], ["mine"], argument).path == place / "mine" / "train.txt"


def test_the_cache_is_beside_the_kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("LINNET_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert downloads() == tmp_path / "linnet" / "data"


def test_of_several_files_any_will_do(tmp_path: Path):
    part = File("first.txt", SUM)
    put(tmp_path / "first.txt")
    assert read_any([TRAIN, part], ["mine"], tmp_path).file is part
    put(tmp_path / "train.txt")
    assert read_any([TRAIN, part], ["mine"], tmp_path).file is TRAIN


def test_a_file_that_is_nowhere_is_missed_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LINNET_DATA", str(tmp_path / "gone"))
    with pytest.raises(FileNotFoundError) as raised:
        read_any([TRAIN], ["mine"], tmp_path)
    message = str(raised.value)
    assert message.startswith("train.txt or old/train.in (plain, .gz or .xz) was not found in ")
    assert f"{tmp_path}, {tmp_path / 'gone'} (no such folder)" in message
    assert f"Its contents have {SUM}" in message
    assert "--data-dir (data_dir=) or LINNET_DATA" in message
    with pytest.raises(FileNotFoundError, match=r"data_dir is '.*gone', which is not a folder"):
        read_any([TRAIN], ["mine"], tmp_path / "gone")


def test_other_contents_are_refused_by_file_expected_and_found(tmp_path: Path):
    path = put(tmp_path / "train.txt", b"changed")
    with pytest.raises(DataError) as raised:
        read_any([TRAIN], ["mine"], tmp_path)
    message = str(raised.value)
    assert str(path) in message
    assert SUM.removeprefix("sha256:") in message
    assert hashlib.sha256(b"changed").hexdigest() in message
    check("x", b"changed", None)
    check("x", b"changed", "md5:" + hashlib.md5(b"changed").hexdigest())


@pytest.mark.parametrize(
    ("name", "contents"),
    [
        ("train.txt.gz", b"not gzip at all"),
        ("train.txt.gz", gzip.compress(CONTENTS)[:-9]),
        ("train.txt.gz", gzip.compress(CONTENTS)[:12] + b"\xff\xff\xff\xff" + gzip.compress(CONTENTS)[16:]),
        ("train.txt.xz", lzma.compress(CONTENTS)[:-20]),
        ("train.txt.xz", b"not xz"),
    ],
    ids=label,
)
def test_a_packed_file_that_is_broken_is_named(tmp_path: Path, name: str, contents: bytes):
    put(tmp_path / name, contents)
    with pytest.raises(
        DataError, match=rf"{name} (cannot be unpacked as \.{name[-2:]}|is not the published)"
    ):
        read_any([TRAIN], ["mine"], tmp_path)


class Counted:
    """A stream without an end, of which it is known how much was read."""

    def __init__(self) -> None:
        self.given = 0

    def read(self, size: int = -1) -> bytes:
        assert size >= 0
        self.given += size
        return bytes(size)


def test_unpacking_stops_at_the_size_of_the_largest_corpus():
    stream = Counted()
    with pytest.raises(DataError, match=r"x unpacks to more than 5,000,000 bytes"):
        bounded("x", stream, 5_000_000)  # type: ignore[arg-type]
    assert stream.given < 7_000_000


@pytest.mark.parametrize(("ending", "pack"), [("gz", gzip.compress), ("xz", lzma.compress)])
def test_a_small_file_does_not_unpack_to_a_large_one(
    tmp_path: Path, ending: str, pack: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("linnet.data.files.LARGEST", 2**20)
    put(tmp_path / f"train.txt.{ending}", pack(bytes(2**22)))
    with pytest.raises(DataError, match=rf"train.txt.{ending} unpacks to more than 1,048,576 bytes"):
        read_any([TRAIN], ["mine"], tmp_path)


# -------------------------------------------------------------------------------------- download


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path]]:
    """The address of a server on this machine, and the folder it serves."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    folder = tmp_path / "home"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", folder
        server.shutdown()
        thread.join()


def test_a_download_goes_into_the_cache_and_is_not_repeated(home: tuple[str, Path], cache: Path):
    url, folder = home
    source = put(folder / "train.txt")
    file = File("train.txt", SUM, f"{url}/train.txt")
    assert read_any([file], ["mine", "other"]).contents == CONTENTS
    source.unlink()
    assert read_any([file], ["mine", "other"]).path == cache / "mine" / "train.txt"
    assert [path.name for path in cache.rglob("*") if path.is_file()] == ["train.txt"]


def packed(kind: str, contents: bytes = CONTENTS) -> bytes:
    data = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a/other.txt", b"x")
            archive.writestr("a/b/train.in", contents)
    else:
        with tarfile.open(fileobj=data, mode=f"w:{kind}") as tar:
            info = tarfile.TarInfo("./a/b/train.in")
            info.size = len(contents)
            tar.addfile(info, io.BytesIO(contents))
    return data.getvalue()


@pytest.mark.parametrize("kind", ["zip", "gz", "bz2"])
def test_a_file_is_taken_out_of_an_archive(home: tuple[str, Path], cache: Path, kind: str):
    url, folder = home
    put(folder / "all.archive", packed(kind))
    found = read_any([File("train.txt", SUM, f"{url}/all.archive", "b/train.in")], ["mine"])
    assert found.contents == CONTENTS
    assert [path.name for path in cache.rglob("*") if path.is_file()] == ["train.txt"]


@pytest.mark.parametrize("kind", ["zip", "gz", "bz2", "xz"])
def test_a_small_archive_does_not_unpack_to_a_large_file(
    home: tuple[str, Path], cache: Path, kind: str, monkeypatch: pytest.MonkeyPatch
):
    """Measured by what is held at most: some of the bound, and not the 64 MB of the file."""
    monkeypatch.setattr("linnet.data.files.LARGEST", 2**20)
    url, folder = home
    put(folder / "all.archive", packed(kind, bytes(2**26)))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"all.archive, .*train.in, unpacks to more than 1,048,576 bytes"):
            read_any([File("train.txt", SUM, f"{url}/all.archive", "b/train.in")], ["mine"])
        assert tracemalloc.get_traced_memory()[1] < 2**25
    finally:
        tracemalloc.stop()
    assert [path for path in cache.rglob("*") if path.is_file()] == []


def test_an_archive_is_not_searched_without_end(home: tuple[str, Path], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("linnet.data.files.LARGEST_ARCHIVE", 2**20)
    url, folder = home
    put(folder / "all.archive", packed("gz", bytes(2**22)))
    with pytest.raises(DataError, match=r"all.archive unpacks to more than 1,048,576 bytes"):
        read_any([File("train.txt", SUM, f"{url}/all.archive", "c/train.in")], ["mine"])


@pytest.mark.parametrize(
    ("contents", "member", "answer"),
    [
        (packed("zip"), "c/train.in", "the archive has no c/train.in; it has a/b/train.in, a/other.txt"),
        (packed("gz")[:-30], "b/train.in", "all.archive is not a complete archive"),
        (b"<html>not here</html>", "b/train.in", "all.archive is not a complete archive"),
        (b"changed", None, "all.archive is not the published file: its contents .* should have sha256"),
    ],
    ids=label,
)
def test_a_download_of_something_else_is_refused(
    home: tuple[str, Path], cache: Path, contents: bytes, member: str | None, answer: str
):
    url, folder = home
    put(folder / "all.archive", contents)
    with pytest.raises(DataError, match=answer):
        read_any([File("train.txt", SUM, f"{url}/all.archive", member)], ["mine"])
    assert [path for path in cache.rglob("*") if path.is_file()] == []


def test_a_failed_download_says_where_it_looked_and_what_to_do(home: tuple[str, Path], tmp_path: Path):
    url, _ = home
    with pytest.raises(MissingDataError) as raised:
        read_any([File("train.txt", SUM, f"{url}/gone.txt")], ["mine"], tmp_path)
    message = str(raised.value)
    for part in (str(tmp_path), SUM, "--data-dir", f"download from {url}/gone.txt failed: 404"):
        assert part in message


def test_without_a_network_the_answer_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with pytest.raises(MissingDataError, match=r"not found in .*--data-dir.*127\.0\.0\.1:1/a failed"):
        read_any([File("train.txt", SUM, "http://127.0.0.1:1/a")], ["mine"], tmp_path)


def test_without_pooch_the_answer_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    monkeypatch.delenv("LINNET_CACHE")
    put(tmp_path / "train.txt")
    file = File("train.txt", SUM, "http://127.0.0.1:1/a")
    assert read_any([file], ["mine"], tmp_path).contents == CONTENTS
    with pytest.raises(MissingDataError, match=r"pip install '.*\[lm\]'"):
        read_any([file], ["mine"])
