"""Launches as on a GPU, up to the launch itself: python triton_launches.py

A stand-in for the driver says that there is an A100. Layers then run as they would there, but that each
kernel is compiled, with the very arguments of its launch, and not run: the numbers mean nothing.
"""

from __future__ import annotations

from typing import Any

import torch
from fused_runs import flags

import linnet
from linnet.run import ways
from linnet.triton import kernels as triton_kernels

compiled: list[Any] = []


class Driver:
    """As much of a driver as compiling asks for."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 80, 32)


class Compiling:
    """A kernel that is compiled where it would be launched."""

    def __init__(self, tuned: Any):
        self.tuned = tuned

    def __getitem__(self, grid: Any) -> Any:
        def launch(*arguments: Any, **settings: Any) -> None:
            config = self.tuned.configs[0]
            assert all(grid(config.kwargs))
            how = {**settings, **config.all_kwargs()}
            compiled.append(self.tuned.fn.warmup(*arguments, grid=(1,), **how))

        return launch


def run(rnn: Any, steps: int, batch: int, kind: str, dtype: torch.dtype = torch.float32) -> list[Any]:
    """The kernels that a training step of `rnn` would launch."""
    before = len(compiled)
    x = torch.randn(steps, batch, 16, dtype=dtype, requires_grad=True)
    with linnet.backend("triton"):
        y, _ = rnn(x, **flags(kind, steps, batch))
        y.sum().backward()
    return compiled[before:]


def main() -> None:
    from triton.runtime import driver

    driver.set_active(Driver())
    ways.TRITON.obstacle = lambda x: None
    tuned = triton_kernels.kernel
    triton_kernels.kernel = lambda *recipe: Compiling(tuned(*recipe))
    rnn = linnet.SRU(16, 32, bidirectional=True)
    forward, backward = run(rnn, 4, 2, "mask and resets")
    for kernel in (forward, backward):
        # Neighbouring channels are known to be neighbours, and inputs are loaded ahead of time.
        assert kernel.src.signature["joint_channel_ahead"] == "constexpr"
        assert kernel.src.signature["joint_time_ahead"] == kernel.src.signature["steps"] == "i64"
        assert "cp.async" in kernel.asm["ptx"]
    again = run(rnn, 1, 3, "mask and resets")
    assert again == [forward, backward], "another length or batch compiled another kernel"
    halves = run(linnet.SRU(16, 32, dtype=torch.bfloat16), 4, 2, "nothing", torch.bfloat16)
    assert all("cp.async" in kernel.asm["ptx"] for kernel in halves)
    steps = run(linnet.LSTM(16, 32), 3, 2, "nothing")
    assert len(steps) == 3 + 3
    assert len({id(kernel) for kernel in steps}) == 2


if __name__ == "__main__":
    main()
