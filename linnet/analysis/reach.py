"""How much what a model says depends on each input that it has read."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from linnet.deploy.step.models import step_of
from linnet.recurrent.modes import evaluating


def reach(model: nn.Module, tokens: Tensor) -> Tensor:
    """Return how much the largest output after the last of `tokens` [T] depends on each of them, [T].

    This is the gradient of the output with respect to the vector of a token, times this vector: how fast the
    output grows if the vector does. The model reads tokens in one direction, as `linnet.export_js` needs it.
    """
    with evaluating(model), torch.enable_grad():
        step = step_of(model)
        if step.table is None:
            raise TypeError(f"reach takes a model that reads tokens; {type(model).__name__} reads vectors")
        vectors = [step.table[token].detach().requires_grad_() for token in tokens]
        state = step.start
        for vector in vectors:
            output, state = step.run(vector[None, None], state)
        gradients = torch.autograd.grad(output.max(), vectors)
    pairs = zip(gradients, vectors, strict=True)
    return torch.stack([(gradient * vector).sum() for gradient, vector in pairs]).detach()
