"""Machine code: kept on disk, whole or not at all, whoever else is at it; and what happens without it."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import signal
import tempfile
from array import array
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from fused_runs import FUSED, draw, finish, run, start

from linnet.fuse import jit, operands

# Writes i at place i of what the first argument points to.
SOURCE = """
define void @count(i64 %begin, i64 %end, ptr %arguments) {
entry:
  %address = load i64, ptr %arguments
  %base = inttoptr i64 %address to ptr
  br label %head
head:
  %i = phi i64 [ %begin, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %body, label %done
body:
  %place = getelementptr i64, ptr %base, i64 %i
  store i64 %i, ptr %place
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("LINNET_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def compilations(monkeypatch) -> list[str]:
    """What was compiled, rather than read."""
    seen: list[str] = []
    original = jit.optimised_object

    def spy(source: str, machine: Any) -> bytes:
        seen.append(source)
        return original(source, machine)

    monkeypatch.setattr(jit, "optimised_object", spy)
    return seen


def works(source: str = SOURCE) -> bool:
    function = jit.compile_function(source, "count")
    counted = torch.full((100,), -1)
    jit.run(function, 100, 10, array("q", [counted.data_ptr()]))
    return torch.equal(counted, torch.arange(100))


def is_whole(path: Path) -> bool:
    data = path.read_bytes()
    return hashlib.sha256(data[32:]).digest() == data[:32]


# ------------------------------------------------------------------------------------ the cache


def test_what_was_compiled_once_is_not_compiled_again(folder: Path, compilations: list[str]):
    assert works()
    (path,) = folder.iterdir()
    assert is_whole(path)
    assert works()
    assert len(compilations) == 1


def test_other_code_and_other_machines_have_files_of_their_own(folder: Path, compilations, monkeypatch):
    assert works()
    assert works(SOURCE + "\n; a comment\n")
    monkeypatch.setattr(jit, "host_cpu", lambda: "another")
    assert works()
    assert len(compilations) == len(list(folder.iterdir())) == 3


DAMAGE = {
    "empty": lambda data: b"",
    "cut short": lambda data: data[: len(data) // 2],
    "one byte short": lambda data: data[:-1],
    "a byte too long": lambda data: data + b"\0",
    "a changed bit": lambda data: data[:-20] + bytes([data[-20] ^ 1]) + data[-19:],
    "zeros": lambda data: bytes(len(data)),
    "a digest alone": lambda data: data[:32],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_made_anew(damage: str, folder: Path, compilations: list[str]):
    assert works()
    (path,) = folder.iterdir()
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    assert works()
    assert len(compilations) == 2
    assert [is_whole(file) for file in folder.iterdir()] == [True]


def test_a_folder_that_cannot_be_made_costs_the_cache_and_nothing_else(tmp_path: Path, monkeypatch, caplog):
    """Below a regular file there is no folder, not even for root."""
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below", "/dev/null/x"):
        monkeypatch.setenv("LINNET_CACHE", str(place))
        with caplog.at_level(logging.INFO, logger="linnet"):
            assert works()
        assert "not kept" in caplog.messages[-1]


def test_a_full_disk_costs_the_cache_and_leaves_nothing_behind(folder: Path, monkeypatch):
    original = tempfile.NamedTemporaryFile

    def full(*args: Any, **options: Any) -> Any:
        file = original(*args, **options)

        def write(data: bytes) -> int:
            file.file.write(data[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        file.write = write
        return file

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", full)
    assert works()
    assert list(folder.iterdir()) == []


def test_a_file_that_cannot_be_put_in_place_leaves_nothing_behind(folder: Path, monkeypatch):
    def refuse(*_: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "replace", refuse)
    assert works()
    assert list(folder.iterdir()) == []


def test_without_a_home_there_is_no_cache_and_no_error(monkeypatch):
    """As for a user that the system does not know, in a container."""

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("LINNET_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert works()


def test_the_cache_is_where_it_is_asked_to_be(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("LINNET_CACHE", str(tmp_path / "here"))
    assert jit.cache_folder() == tmp_path / "here"
    monkeypatch.delenv("LINNET_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert jit.cache_folder() == tmp_path / "linnet"


# --------------------------------------------------------------------- processes, forks and threads


RUN = """
import torch, linnet
torch.manual_seed(0)
rnn = linnet.LRN(4, 21)
x = torch.randn(5, 3, 4)
y, _ = rnn(x)
y.sum().backward()
print(y.double().sum().item(), rnn.directions[0].cell.input.weight.grad.double().sum().item())
"""


def test_processes_may_compile_the_same_at_once(folder: Path):
    processes = [start("-c", RUN) for _ in range(3)]
    assert len({finish(process) for process in processes}) == 1
    files = list(folder.iterdir())
    assert len(files) == 3  # forward, backward, and what packs matrices
    assert all(map(is_whole, files))


HALF_WRITTEN = """
import time
from linnet.fuse import jit
original = jit.tempfile.NamedTemporaryFile

def slow(*args, **options):
    file = original(*args, **options)

    def write(data):
        file.file.write(data[: len(data) // 2])
        file.flush()
        print("half", flush=True)
        time.sleep(600)

    file.write = write
    return file

jit.tempfile.NamedTemporaryFile = slow
"""


def test_a_process_killed_while_it_writes_leaves_a_usable_cache(folder: Path, compilations: list[str]):
    process = start("-c", f"{HALF_WRITTEN}\njit.compile_function({SOURCE!r}, 'count')\n")
    assert process.stdout is not None
    assert process.stdout.readline() == "half\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    for _ in range(2):
        assert works()
    assert len(compilations) == 1


FORKED = """
import os, sys, threading, torch, linnet
from linnet.fuse import jit
torch.set_num_threads(1)
x = torch.randn(5, 3, 4)

def gradients(unit):
    torch.manual_seed(0)
    rnn = unit(4, 21)
    y, _ = rnn(x)
    return [y, *torch.autograd.grad(y.sum(), list(rnn.parameters()))]

expected = {unit: gradients(unit) for unit in (linnet.LRN, linnet.LSTM)}
LOCK
child = os.fork()
if child == 0:
    import signal
    signal.alarm(60)
    # What the parent had compiled, and something new.
    same = [all(map(torch.equal, gradients(unit), known)) for unit, known in expected.items()]
    gradients(linnet.ATR)
    os._exit(0 if all(same) else 1)
_, status = os.waitpid(child, 0)
again = [all(map(torch.equal, gradients(unit), known)) for unit, known in expected.items()]
sys.exit(0 if status == 0 and all(again) else f"status of the child: {status}")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_fork_runs_what_its_parent_had_and_compiles_more(folder: Path):
    finish(start("-c", FORKED.replace("LOCK", "")))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_fork_while_another_thread_compiles_does_not_wait_for_it(folder: Path):
    """That thread is not there in the child, and whatever it held would never be let go."""
    busy = "held = threading.Thread(target=jit.compiling.acquire)\nheld.start()\nheld.join()"
    code = FORKED.replace("LOCK", busy).replace(
        "os.waitpid(child, 0)", "os.waitpid(child, 0)\njit.compiling.release()"
    )
    finish(start("-c", code.replace("signal.alarm(60)", "signal.alarm(15)")))


def test_many_threads_may_call_at_once(folder: Path):
    """With nothing compiled: they all want the same kernels at the same time."""
    operands.compiled.cache_clear()
    units = [variant.build(17, torch.float32) for variant in FUSED[:3]] * 4
    x = draw(6, 3, 7, seed=5, dtype=torch.float32).requires_grad_()
    expected = [run("reference", rnn, x) for rnn in units]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda rnn: [run("cpu", rnn, x) for _ in range(5)], units))
    for ours, theirs in zip(found, expected, strict=True):
        for results in ours:
            torch.testing.assert_close(results, theirs, rtol=1e-4, atol=1e-4)


# --------------------------------------------------------------------------------- without llvmlite


WITHOUT = """
import sys, warnings
sys.modules["llvmlite"] = None
import torch, linnet

lines = []
warnings.simplefilter("always", linnet.FallbackWarning)
warnings.showwarning = lambda message, *_: lines.append(str(message))
"""

WITHOUT_EAGER = f"""{WITHOUT}
for unit in linnet.UNITS.values():
    rnn = unit(4, 6)
    x = torch.randn(5, 2, 4)
    y, _ = rnn(x)
    y.sum().backward()
    with linnet.backend("reference"):
        assert torch.equal(y, rnn(x)[0])
    rnn(x)
assert len(lines) == len(linnet.UNITS), lines
assert all("reference loop" in line and "llvmlite" in line for line in lines), lines
try:
    with linnet.backend("cpu"):
        linnet.LRN(4, 6)(x)
except RuntimeError as error:
    assert "llvmlite" in str(error)
else:
    sys.exit("no error")
"""

WITHOUT_COMPILED = f"""{WITHOUT}
rnn = linnet.LRN(4, 6)
x = torch.randn(5, 2, 4)
y, _ = torch.compile(rnn, backend="aot_eager")(x)
torch.testing.assert_close(y, rnn(x)[0])
"""


def test_without_llvmlite_everything_runs_by_the_reference_and_says_so_once():
    finish(start("-c", WITHOUT_EAGER))


def test_without_llvmlite_a_compiled_module_runs_too():
    finish(start("-c", WITHOUT_COMPILED))


IMPORTS = """
import sys, linnet
rnns = [unit(4, 6) for unit in linnet.UNITS.values()]
heavy = {"llvmlite", "numba", "torch._dynamo", "torch._inductor"} & set(sys.modules)
assert not heavy, heavy
"""


def test_importing_and_building_needs_no_compiler():
    finish(start("-c", IMPORTS))
