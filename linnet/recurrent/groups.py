"""Groups of parameters for an optimiser, as the authors of some units advise: slower, or without decay."""

from __future__ import annotations

from typing import Any

from torch import nn

from linnet.base.options import check_number
from linnet.recurrent.cell import Cell


def parameter_groups(
    model: nn.Module, lr: float, weight_decay: float = 0.0, slow: float = 0.5
) -> list[dict[str, Any]]:
    """Return the parameters of a model in groups for an optimiser of torch.

    optimiser = torch.optim.AdamW(linnet.parameter_groups(model, lr=1e-3, weight_decay=0.05))

    slow   the share of the learning rate for parameters that say what every step of a unit does, such as
           LRU's lambda; they have no weight decay

    Units name such parameters in `slow_parameters`, and those that are only to be left out of weight decay in
    `undecayed_parameters`. A model without such units has one group.
    """
    check_number("lr", lr, least=0)
    check_number("weight_decay", weight_decay, least=0)
    check_number("slow", slow, least=0)
    slowly, undecayed = advised(model, "slow_parameters"), advised(model, "undecayed_parameters")
    usual: list[nn.Parameter] = []
    slower: list[nn.Parameter] = []
    constant: list[nn.Parameter] = []
    for parameter in model.parameters():
        key = id(parameter)
        (slower if key in slowly else constant if key in undecayed else usual).append(parameter)
    groups: list[dict[str, Any]] = [
        {"params": usual, "lr": lr, "weight_decay": weight_decay},
        {"params": constant, "lr": lr, "weight_decay": 0.0},
        {"params": slower, "lr": lr * slow, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def advised(model: nn.Module, attribute: str) -> set[int]:
    """The identities of the parameters that the units in a model name by this attribute."""
    found = set()
    for cell in model.modules():
        if isinstance(cell, Cell):
            names = getattr(cell, attribute)
            found |= {id(p) for name, p in cell.named_parameters() if name in names}
    return found
