"""An ONNX file read by Linnet against onnxruntime: the largest difference, and times in turn on one thread.

    python -m tools.compare_onnx silero_vad.onnx --set sr=16000 --shape input=1x576

Inputs are random: normal numbers, or whole numbers below 256. `docs/log.md` has results.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import torch

from linnet.cli.convert import number, pair_of, shape
from linnet.cli.parser import path_name
from linnet.deploy.read.files import read_model
from linnet.deploy.read.states import as_tuple, example_of

ROUNDS = 30


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=path_name)
    parser.add_argument("--set", type=pair_of(number), action="append", default=[])
    parser.add_argument("--shape", type=pair_of(shape), action="append", default=[])
    options = parser.parse_args()
    model = read_model(options.file, fixed=dict(options.set))
    inputs = {name: filled(each) for name, each in example_of(model, dict(options.shape)).items()}
    feed = {name: each.numpy() for name, each in inputs.items()} | {n: np.array(v) for n, v in options.set}
    session = session_of(str(options.file))
    with torch.inference_mode():
        found, expected = as_tuple(model(**inputs)), session.run(None, feed)
        ours, theirs = in_turn(lambda: model(**inputs), lambda: session.run(None, feed))
    differences = [float(np.abs(a.numpy() - b).max()) for a, b in zip(found, expected, strict=True)]
    largest = max(float(np.abs(each).max()) for each in expected)
    print(f"{options.file.name}: difference {max(differences):.1e} of {largest:.2g}, ", end="")
    print(f"{1000 * ours:.2f} ms, onnxruntime {1000 * theirs:.2f} ms, ratio {ours / theirs:.2f}")


def filled(example: torch.Tensor) -> torch.Tensor:
    if example.is_floating_point():
        return 0.1 * torch.randn_like(example)
    return torch.randint_like(example, 256)


def session_of(path: str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options)


def in_turn(*jobs: Callable[[], Any]) -> list[float]:
    """The median seconds of each job, which run one after the other in each round."""
    times: list[list[float]] = [[] for _ in jobs]
    for _ in range(ROUNDS):
        for job, seconds in zip(jobs, times, strict=True):
            start = time.perf_counter()
            job()
            seconds.append(time.perf_counter() - start)
    return [statistics.median(each) for each in times]


if __name__ == "__main__":
    main()
