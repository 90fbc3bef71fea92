"""Code and tensors that kernels know by their addresses are made once, and are not freed while in use."""

from __future__ import annotations

import ast
import gc
import time
import weakref
from array import array
from functools import partial
from pathlib import Path

import pytest
import torch
from fused_runs import finish, start
from helpers import at_once

import linnet
from linnet.cpu import jit, row_kernels
from linnet.cpu.kernel_cache import once

# The first calls of a process, by eight threads at once: single steps of different batches. Each thread steps
# until all of them have, so that a kernel that one of them frees is missed by the others.
FIRST_CALLS = """
import threading, torch, linnet

rnn, gate, found = linnet.SRU(6, 8).double().eval(), threading.Barrier(8), {}

def work(batch):
    x = torch.ones(1, batch, 6, dtype=torch.float64)
    gate.wait(60)
    with torch.no_grad():
        found[batch] = [rnn(x)[0]]
        while len(found) < 8:
            found[batch].append(rnn(x)[0])

threads = [threading.Thread(target=work, args=(batch,), daemon=True) for batch in range(1, 9)]
[thread.start() for thread in threads]
[thread.join(60) for thread in threads]
with torch.no_grad(), linnet.backend("reference"):
    expected = rnn(torch.ones(1, 1, 6, dtype=torch.float64))[0]
assert all(torch.allclose(y, expected) for each in found.values() for y in each)
print(len(found))
"""


def test_threads_may_make_the_first_calls_of_a_process():
    assert finish(start("-c", FIRST_CALLS)).strip() == "8"


def test_threads_that_need_a_value_at_once_get_the_same_one():
    made = []

    @once
    def slow(key: str) -> list[str]:
        made.append(key)
        time.sleep(0.01)
        return [key]

    found = [each for results in at_once(*[partial(slow, "a")] * 4, partial(slow, "b")) for each in results]
    assert sorted(made) == ["a", "b"]
    assert len({id(each) for each in found}) == 2


def test_a_function_keeps_its_code_alive():
    kernel = row_kernels.copies.__wrapped__()
    function, alive = kernel.as_function(), weakref.ref(kernel)
    del kernel
    gc.collect()
    assert alive() is not None
    source, target = torch.arange(6.0), torch.zeros(6)
    numbers = array("q", [source.data_ptr(), target.data_ptr(), 24, 24, 1, 24])
    function(0, 1, numbers.buffer_info()[0])
    assert target.tolist() == source.tolist()
    del function
    gc.collect()
    assert alive() is None


def test_the_numbers_of_a_plan_are_not_replaced(monkeypatch):
    """Another thread may make them meanwhile, and prepare a step with their address."""
    (plan,) = linnet.SRU(3, 4, zoneout=0.25).eval().directions[0].plans_for(())
    plan.numbers.clear()
    make, others = torch.tensor, []

    def interrupted(*arguments, **options):
        monkeypatch.setattr(torch, "tensor", make)
        others.append(plan.numbers_as(torch.float32))
        return make(*arguments, **options)

    monkeypatch.setattr(torch, "tensor", interrupted)
    assert plan.numbers_as(torch.float32) is others[0]
    assert plan.numbers[torch.float32] is others[0]


@pytest.mark.parametrize("path", sorted(Path(jit.__file__).parent.glob("*.py")), ids=lambda path: path.stem)
def test_no_code_or_tensor_is_in_a_cache_that_may_replace_it(path: Path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            caches = {ast.unparse(each).partition("(")[0] for each in node.decorator_list}
            if caches & {"cache", "lru_cache", "functools.cache", "functools.lru_cache"}:
                body = ast.unparse(node)
                assert "jit." not in body, f"{node.name}: use kernel_cache.once"
                assert "Tensor" not in body, f"{node.name}: use kernel_cache.once"
