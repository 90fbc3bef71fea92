"""The inputs of torch's own tests of nn.LSTM, nn.GRU, nn.RNN and their cells, run through Linnet's twins."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch
from helpers import same, tensors
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.testing._internal.common_modules import module_db

import linnet

NAMES = ("LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell")


def samples(name: str, training: bool) -> Iterator[Any]:
    (info,) = [each for each in module_db if each.module_cls is getattr(nn, name)]
    yield from info.module_inputs_func(
        info, device="cpu", dtype=torch.double, requires_grad=False, training=training
    )


@cache
def listed() -> list[Any]:
    return [
        pytest.param(name, training, number, id=f"{name}-{'train' if training else 'eval'}-{number}")
        for name in NAMES
        for training in (True, False)
        for number, _ in enumerate(samples(name, training))
    ]


def twins(name: str, sample: Any, training: bool) -> tuple[nn.Module, nn.Module]:
    made = sample.constructor_input
    options = {**made.kwargs, "dtype": torch.double}
    theirs, ours = (getattr(library, name)(*made.args, **options) for library in (nn, linnet))
    ours.load_state_dict(theirs.state_dict())
    return theirs.train(training), ours.train(training)


def results(module: nn.Module, call: Any) -> tuple[list[Tensor], list[Tensor]]:
    """All that a call returns, and the gradients of all that it is given."""
    args, kwargs = copy.deepcopy((call.args, call.kwargs))
    leaves = [leaf.requires_grad_() for leaf in flat((args, kwargs)) if leaf.is_floating_point()]
    found = flat(module(*args, **kwargs))
    loss = sum(tensor.sin().sum() for tensor in found if tensor.is_floating_point())
    return found, list(torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True))


def flat(value: Any) -> list[Tensor]:
    if isinstance(value, PackedSequence):
        return [value.data]
    if isinstance(value, Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return [tensor for part in parts for tensor in flat(part)]


@pytest.mark.filterwarnings("ignore:dropout option adds dropout:UserWarning")
@pytest.mark.parametrize(("name", "training", "number"), listed())
def test_it_is_what_torch_computes(name: str, training: bool, number: int):
    sample = list(samples(name, training))[number]
    theirs, ours = twins(name, sample, training)
    for backend in ("cpu", "reference"):
        with linnet.backend(None if backend == "cpu" else backend):
            found, gradients = results(ours, sample.forward_input)
        expected, theirs_gradients = results(theirs, sample.forward_input)
        same(found, expected, atol=1e-12)
        same(gradients, theirs_gradients, atol=1e-11)


def test_there_are_samples_of_every_module():
    counts = {name: sum(1 for _ in samples(name, True)) for name in NAMES}
    assert all(counts.values()), counts


# ------------------------------------------------------------- the grid of torch's tests of cuDNN

GRID = [
    {"num_layers": layers, "bidirectional": both, "bias": bias, "batch_first": first, **more}
    for layers in (1, 2)
    for both in (False, True)
    for bias in (False, True)
    for first, more in ((False, {}), (True, {"proj_size": 2}))
]


@pytest.mark.parametrize("options", GRID, ids=lambda o: "-".join(f"{k}={v}" for k, v in o.items()))
@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("lengths", [None, [6, 5, 5, 2]], ids=["padded", "packed"])
def test_the_grid_of_torchs_tests_of_cudnn(name: str, options: dict[str, Any], lengths: Any):
    """Output, final state and the gradients of input, state and every weight, given a state or not."""
    options = {key: value for key, value in options.items() if key != "proj_size" or name == "LSTM"}
    theirs = getattr(nn, name)(3, 4, **options, dtype=torch.double)
    ours = getattr(linnet, name)(3, 4, **options, dtype=torch.double)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn((4, 6, 3) if options["batch_first"] else (6, 4, 3), dtype=torch.double)
    if lengths is not None:
        x = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=options["batch_first"])
    _, state = theirs(x)
    start = tuple(torch.randn_like(s) for s in tensors(state))
    for given in (None, start if len(start) > 1 else start[0]):
        found, expected = ((flat(module(x, given)), module) for module in (ours, theirs))
        same(found[0], expected[0])
        gradients = [weight_gradients(flats, module) for flats, module in (found, expected)]
        for key, gradient in gradients[0].items():
            same(gradient, gradients[1][key], atol=1e-10)


def weight_gradients(found: list[Tensor], module: Any) -> dict[str, Tensor]:
    """Of the weights that both have by the same name; the first bias has the gradient of the gates."""
    names = [name for name in module._flat_weights_names if "bias_hh" not in name]
    weights = [getattr(module, name) for name in names]
    loss: Any = sum(tensor.sin().sum() for tensor in found)
    return dict(zip(names, torch.autograd.grad(loss, weights), strict=True))
