"""Machine code: kept on disk, whole or not at all, whoever else is at it; and what happens without it."""

from __future__ import annotations

import errno
import gc
import hashlib
import logging
import os
import signal
import threading
import weakref
from array import array
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from fused_runs import FUSED, draw, finish, run, start
from user_units import Powers

import linnet
from benchmarks.memory import resident, trim
from linnet.base import files
from linnet.base import forks as forks_module
from linnet.cpu import disk, jit, scan_call
from linnet.cpu.kernel_cache import KernelCache
from linnet.run import plan_cache

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

    def spy(source: str, *how: Any) -> bytes:
        seen.append(source)
        return original(source, *how)

    monkeypatch.setattr(jit, "optimised_object", spy)
    return seen


def works(source: str = SOURCE) -> bool:
    function = jit.compile_function(source, "count")
    counted = torch.full((100,), -1)
    jit.run(function, 100, 10, array("q", [counted.data_ptr()]))
    return torch.equal(counted, torch.arange(100))


def is_whole(path: Path) -> bool:
    """Sealed for the key that its name begins."""
    data = path.read_bytes()
    key = data[len(disk.MAGIC) :][:32]
    return disk.unsealed(data, key) is not None and key.hex().startswith(path.stem)


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
    "another digest": lambda data: hashlib.sha256(data[80:]).digest() + data[80:],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_made_anew(damage: str, folder: Path, compilations: list[str]):
    assert works()
    (path,) = folder.iterdir()
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    assert works()
    assert len(compilations) == 2
    assert [is_whole(file) for file in folder.iterdir()] == [True]


def test_files_that_were_exchanged_are_made_anew(folder: Path, compilations: list[str]):
    """Both are whole, and each is the code of the other."""
    other = SOURCE.replace("store i64 %i, ptr %place", "store i64 7, ptr %place")
    assert works()
    assert not works(other)
    one, two = sorted(folder.iterdir())
    one.rename(folder / "kept")
    two.rename(one)
    (folder / "kept").rename(two)
    assert works()
    assert not works(other)
    assert len(compilations) == 4
    assert all(map(is_whole, folder.iterdir()))


posix = pytest.mark.skipif(os.name != "posix", reason="there are no such modes on this system")
root = pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can give files away")


def refused(folder: Path, caplog) -> str:
    """What is said of a folder that is there with a kernel in it, once, when it must not be used."""
    disk.warn_once.cache_clear()
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="linnet"):
        assert works()
        assert works()
    (message,) = caplog.messages
    assert str(folder) in message
    return message


@posix
def test_a_new_folder_is_for_its_user_alone(folder: Path):
    before = os.umask(0)
    try:
        assert works()
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [file.stat().st_mode & 0o777 for file in folder.iterdir()] == [0o600]


@posix
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o707, 0o1777])
def test_a_folder_that_others_can_write_to_is_not_used(mode: int, folder: Path, compilations, caplog):
    assert works()
    folder.chmod(mode)
    message = refused(folder, caplog)
    assert "can be written by other users" in message
    assert f"chmod -R go-w {folder}" in message
    assert "LINNET_CACHE" in message
    assert len(compilations) == 3
    folder.chmod(0o700)
    assert works()
    assert len(compilations) == 3


@root
def test_a_folder_of_somebody_else_is_not_used(folder: Path, compilations: list[str], caplog):
    assert works()
    os.chown(folder, 12345, -1)
    assert "belongs to user 12345" in refused(folder, caplog)
    assert len(compilations) == 3


@posix
def test_a_link_to_a_folder_is_judged_by_the_folder(folder: Path, tmp_path: Path, monkeypatch, caplog):
    assert works()
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.setenv("LINNET_CACHE", str(tmp_path / "link"))
    with caplog.at_level(logging.WARNING, logger="linnet"):
        assert works()
    assert not caplog.messages
    folder.chmod(0o777)
    refused(tmp_path / "link", caplog)


def give_away(path: Path) -> None:
    path.chmod(0o666)


def make_link(path: Path) -> None:
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


def make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@posix
@pytest.mark.parametrize("change", [give_away, make_link, make_pipe])
def test_a_file_that_others_may_have_written_is_replaced(change, folder: Path, compilations: list[str]):
    assert works()
    (path,) = folder.iterdir()
    change(path)
    assert works()
    assert works()
    assert len(compilations) == 2
    assert path.stat().st_mode & 0o777 == 0o600
    assert not path.is_symlink()
    assert is_whole(path)


def test_a_folder_that_cannot_be_made_costs_the_cache_and_nothing_else(tmp_path: Path, monkeypatch, caplog):
    """Below a regular file there is no folder, not even for root."""
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below", "/dev/null/x"):
        monkeypatch.setenv("LINNET_CACHE", str(place))
        with caplog.at_level(logging.INFO, logger="linnet"):
            assert works()
        assert "not kept" in caplog.messages[-1]


def test_a_full_disk_costs_the_cache_and_leaves_nothing_behind(folder: Path, monkeypatch):
    def full(path: Path, content: bytes, mode: int) -> None:
        path.write_bytes(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "write_new", full)
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
    processes = [start("-c", RUN) for _ in range(2)]
    assert len({finish(process) for process in processes}) == 1
    files = list(folder.iterdir())
    assert len(files) == 3  # forward, backward, and what packs matrices
    assert all(map(is_whole, files))


HALF_WRITTEN = """
import time
from linnet.base import files
from linnet.cpu import jit

def write_half(path, content, mode):
    path.write_bytes(content[: len(content) // 2])
    print("half", flush=True)
    time.sleep(600)

files.write_new = write_half
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
from linnet.cpu import jit
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


# Threads that compile without end, while the main thread forks again and again. A child compiles, too.
FORKED_BUSILY = """
import os, signal, sys, threading, time
from linnet.cpu import jit
SOURCE = sys.argv[1]
numbers = iter(range(10**9))
ended = False

def compile_one():
    jit.compile_function(SOURCE.replace("i64 1\\n", f"i64 1 ; {os.getpid()} {next(numbers)}\\n", 1), "count")

def compile_on():
    while not ended:
        compile_one()

compile_one()
threads = [threading.Thread(target=compile_on, daemon=True) for _ in range(2)]
for thread in threads:
    thread.start()
for round in range(40):
    time.sleep(0.003 * (round % 5))
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # a child that waits in vain is killed by this
        compile_one()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        sys.exit(f"the child of round {round} ended with {status}")
ended = True
for thread in threads:
    thread.join(20)
sys.exit("a thread of the parent hangs" if any(thread.is_alive() for thread in threads) else 0)
"""

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")


@forks
def test_forks_while_other_threads_compile_hang_nobody(folder: Path):
    """Those threads are not there in a child, and whatever they held would never be let go."""
    finish(start("-c", FORKED_BUSILY, SOURCE), 120)


# Another thread imports what makes kernels, at its first call, while the main thread forks.
FORKED_WHILE_IMPORTING = """
import importlib.abc, os, signal, sys, threading, time, torch, linnet

class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "linnet.cpu.gemm":
            importing.set()
            time.sleep(0.5)

importing = threading.Event()
sys.meta_path.insert(0, Slow())
run = lambda: linnet.LRN(4, 6)(torch.zeros(2, 1, 4))
thread = threading.Thread(target=run)
thread.start()
importing.wait()
child = os.fork()
if child == 0:
    signal.alarm(20)
    run()
    os._exit(0)
_, status = os.waitpid(child, 0)
thread.join()
sys.exit(status)
"""


@forks
def test_a_fork_while_another_thread_imports_what_makes_kernels_hangs_nobody(folder: Path):
    finish(start("-c", FORKED_WHILE_IMPORTING), 120)


@forks
def test_a_fork_of_a_thread_that_compiles_itself_goes_on():
    with forks_module.compiling:
        child = os.fork()
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0


# ------------------------------------------------------------------------------- kernels are freed


def live_kernels() -> int:
    gc.collect()
    return sum(type(thing) is jit.Compiled for thing in gc.get_objects())


def test_a_number_that_changes_makes_no_further_kernels(folder: Path, compilations: list[str]):
    """As a schedule of zoneout does: each value used to leave about three megabytes behind."""
    rnn: Any = linnet.LRN(4, 6, zoneout=0.1).eval()
    x = torch.randn(5, 3, 4, requires_grad=True)
    counts = []
    for i in range(plan_cache.MOST_PLANS + 8):
        rnn.directions[0].zoneout = 0.1 + 0.001 * i
        y, _ = rnn(x)
        y.sum().backward()
        counts.append(len(compilations))
    assert counts[-1] == counts[0]
    assert len(rnn.directions[0].plan_cache.plans) <= plan_cache.MOST_PLANS
    with linnet.backend("reference"):
        torch.testing.assert_close(y, rnn(x)[0])


def test_memory_does_not_grow_with_the_values_of_an_option(folder: Path):
    rnn: Any = linnet.JANET(4, 6)
    x = torch.randn(5, 3, 4, requires_grad=True)

    def take(values: range) -> float:
        for i in values:
            rnn.directions[0].cell.beta = 0.3 + 0.001 * i
            rnn(x)[0].sum().backward()
        gc.collect()
        trim()
        return resident()

    first = take(range(20))
    # The kernels of 60 values took 81 MB, and what LLVM's optimiser does not give back is half of it.
    assert take(range(20, 80)) - first < 20


def test_the_kernels_of_modules_that_are_gone_are_freed(folder: Path, monkeypatch):
    """All but the last few, for whoever builds the same module again."""
    assert (scan_call.KERNELS.recent.maxlen or 0) <= 32
    recent = KernelCache[jit.Compiled](recent=3)
    monkeypatch.setattr(scan_call, "KERNELS", recent)
    Powers(4, 6)(torch.randn(2, 3, 4))  # what packs matrices stays
    recent.clear()
    before = live_kernels()
    for exponent in range(3, 11):
        # An exponent is part of the code.
        rnn = Powers(4, 6, exponent=exponent + 0.25)
        rnn(torch.randn(2, 3, 4))
        del rnn
    assert 0 < live_kernels() - before <= 3
    recent.clear()
    assert live_kernels() <= before


def test_a_kernel_stays_while_somebody_runs_it(folder: Path, monkeypatch):
    """Whoever runs it holds it, though nobody else does any more."""
    kernel = jit.compile_function(SOURCE, "count")
    alive, running, ended = weakref.ref(kernel), threading.Event(), threading.Event()
    original = jit.parallel_for()

    def slow(*arguments: Any) -> int:
        running.set()
        ended.wait(20)
        return original(*arguments)

    monkeypatch.setattr(jit, "parallel_for", lambda: slow)
    counted = torch.full((100,), -1)
    # The arguments are handed over, so that no frame but that of `run` holds the kernel.
    thread = threading.Thread(target=jit.run, args=(kernel, 100, 10, array("q", [counted.data_ptr()])))
    thread.start()
    running.wait(20)
    del kernel
    gc.collect()
    assert alive() is not None
    ended.set()
    thread.join(20)
    assert torch.equal(counted, torch.arange(100))
    gc.collect()
    assert alive() is None


def test_many_threads_may_call_at_once(folder: Path):
    """With nothing compiled: they all want the same kernels at the same time."""
    scan_call.KERNELS.clear()
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

WITHOUT_COMPILED = f"""{WITHOUT_EAGER}
rnn = linnet.LRN(4, 6)
x = torch.randn(5, 2, 4)
y, _ = torch.compile(rnn, backend="aot_eager")(x)
torch.testing.assert_close(y, rnn(x)[0])
"""


def test_without_llvmlite_everything_runs_by_the_reference_and_says_so_once():
    """A compiled module, too."""
    finish(start("-c", WITHOUT_COMPILED))


IMPORTS = """
import sys, linnet
rnns = [unit(4, 6) for unit in linnet.UNITS.values()]
heavy = {"llvmlite", "numba", "torch._dynamo", "torch._inductor"} & set(sys.modules)
assert not heavy, heavy
"""


def test_importing_and_building_needs_no_compiler():
    finish(start("-c", IMPORTS))


def test_a_cached_kernel_is_found_without_emitting_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LINNET_CACHE", str(tmp_path))
    emitted: list[str] = []

    def emit(recipe: str) -> str:
        emitted.append(recipe)
        return SOURCE

    for recipe in ("one", "one", "another"):
        jit.compile_recipe(recipe, emit, "count")
    assert emitted == ["one", "another"]
    monkeypatch.setattr(jit, "emitters", lambda: "another version of Linnet")
    jit.compile_recipe("one", emit, "count")
    assert emitted == ["one", "another", "one"]


def test_a_recipe_is_the_same_text_in_every_process():
    """Python's hashes differ from process to process: no set may decide an order."""
    command = (
        "import linnet; from linnet.cpu import jit; first = jit.compile_recipe\n"
        "def noting(recipe, *how): print(recipe); return first(recipe, *how)\n"
        "jit.compile_recipe = noting; import torch\n"
        "for unit in (linnet.SRU, linnet.LSTM, linnet.NRU):\n"
        "    unit(4, 16)(torch.ones(3, 2, 4))[0].sum().backward()"
    )
    one, other = [finish(start("-c", command)) for _ in range(2)]
    assert one.count("Recipe(") >= 6
    assert one == other
