"""Tools that change or read the weights of modules: peft's LoRA, torch.ao, per-sample gradients."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from helpers import identical, liven, randn, same
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

import linnet

CASES = [
    (linnet.SRU, ["input.weight"]),
    (linnet.LRN, ["input.weight"]),
    (linnet.LSTM, ["rnn.weight_ih_l0", "rnn.weight_hh_l0", "rnn.weight_ih_l1", "rnn.weight_hh_l1"]),
    (linnet.GRU, ["rnn.weight_hh_l1"]),
    (linnet.JANET, ["input.weight", "recurrent.weight"]),
    (linnet.SCRN, ["input.weight", "recurrent.weight", "context.weight"]),
    (linnet.NRU, ["input.weight", "recurrent.weight", "heads.weight"]),
]


class Model(nn.Module):
    def __init__(self, rnn: linnet.Recurrent):
        super().__init__()
        self.rnn, self.head = rnn, nn.Linear(rnn.output_size, 1, dtype=torch.double)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x)[0])


def lora(unit: Any, targets: list[str]) -> tuple[Any, Model]:
    """A model with LoRA of random numbers, and the model that it was made from."""
    peft = pytest.importorskip("peft", reason="peft is not installed: pip install peft")
    model = Model(liven(unit(4, 4, 2)))
    options = {"r": 2, "lora_alpha": 4, "target_parameters": targets, "init_lora_weights": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return peft.get_peft_model(copy.deepcopy(model), peft.LoraConfig(**options)).double(), model


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


@pytest.mark.parametrize(("unit", "targets"), CASES, ids=lambda value: getattr(value, "__name__", ""))
def test_lora_on_the_matrices_trains_and_merges(unit: Any, targets: list[str]):
    adapted, model = lora(unit, targets)
    x = randn(5, 2, 4)
    results = []
    # The recorded step of NRU reads parameters only, and not the sums that LoRA puts in their places.
    kernels = None if unit is linnet.NRU else "cpu"
    for backend in (kernels, "reference"):
        with linnet.backend(backend):
            y = adapted(x)
        results.append((y, torch.autograd.grad(y.sin().sum(), list(trained(adapted).values()))))
    same(*results, atol=1e-10)
    assert not torch.allclose(results[0][0], model(x))
    layers = 1 if targets[0].startswith("rnn.") else 2  # torch's names are those of one layer
    assert len(trained(adapted)) == 2 * layers * len(targets)
    assert all(gradient.abs().sum() > 0 for gradient in results[0][1])
    torch.optim.SGD(trained(adapted).values(), 0.1).zero_grad()
    with torch.no_grad():
        for weight, gradient in zip(trained(adapted).values(), results[0][1], strict=True):
            weight -= 0.01 * gradient
    y = adapted(x)
    assert not torch.allclose(y, results[0][0])
    with adapted.disable_adapter():
        same(adapted(x), model(x))
    same(adapted.merge_and_unload()(x), y)


@pytest.mark.filterwarnings("ignore::linnet.FallbackWarning")
def test_a_cell_with_lora_steps_as_its_stack():
    adapted, _ = lora(linnet.RAN, ["input.weight", "recurrent.weight"])
    rnn, x = adapted.base_model.model.rnn, randn(2, 4)
    same(rnn.cells[0](x)[0], rnn.cells[0].run_step(x)[0])
    _, (h, _) = rnn(x[None])
    same(rnn.cells[0](x)[0], h[0])
    with torch.no_grad():
        for _ in range(3):  # a step without gradients prepares itself for the next
            for weight in trained(adapted).values():
                weight.mul_(1.5)
            _, (h, _) = rnn(x[None])
            same(rnn.cells[0](x)[0], h[0])
        stream = linnet.stream(rnn.eval(), batch=2)
        same(stream(x), rnn(x[None])[0][0])


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:torch.quantize_per_tensor:UserWarning")
def test_torch_ao_says_that_it_leaves_units_as_they_are():
    from torch.ao.quantization import quantize_dynamic

    model = Model(linnet.SRU(4, 4)).float()
    x = torch.randn(3, 2, 4)
    with pytest.warns(UserWarning, match="quantisation leaves linnet's SRU as it is"):
        quantised = quantize_dynamic(model, {nn.Linear, nn.LSTM})
    identical(quantised.rnn(x), model.rnn(x))
    assert type(quantised.head) is not nn.Linear


@pytest.mark.parametrize("unit", [linnet.SRU, linnet.LSTM, linnet.RAN], ids=lambda unit: unit.__name__)
def test_gradients_of_each_sample_by_vmap(unit: Any):
    """What Opacus needs: the gradient of each sequence of a batch, as if it were alone."""
    rnn = liven(unit(3, 4))
    weights, x = {name: p.detach() for name, p in rnn.named_parameters()}, randn(6, 5, 3)

    def loss(weights: dict[str, Tensor], sequence: Tensor) -> Tensor:
        return functional_call(rnn, weights, (sequence,))[0].sin().sum()

    found = vmap(grad(loss), in_dims=(None, 0))(weights, x)
    for number, sequence in enumerate(x):
        alone = torch.autograd.grad(rnn(sequence)[0].sin().sum(), list(rnn.parameters()))
        same([gradients[number] for gradients in found.values()], list(alone), atol=1e-10)
