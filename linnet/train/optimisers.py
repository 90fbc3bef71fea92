"""Optimisers by name, the moving average of weights, and the norm of a gradient."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn, optim

from linnet.base.torch_private import foreach_lerp_
from linnet.runs.config import OptimiserConfig
from linnet.train.schedules import ever_stuck


def current(settings: OptimiserConfig, history: Sequence[float]) -> str:
    """Return the name of the optimiser after these validations: nt-asgd is first SGD and then ASGD."""
    if settings.optimiser != "nt-asgd":
        return settings.optimiser
    return "asgd" if ever_stuck(history, settings.non_monotone) else "sgd"


def grouped(
    parameters: list[nn.Parameter], rates: Mapping[nn.Module, float], rate: float
) -> list[dict[str, Any]]:
    """Return the parameters in groups, each with its learning rate in shares of `rate`.

    rates   the learning rates of parts of the model that have one of their own
    """
    owners = {p: own / rate if rate else 0.0 for part, own in rates.items() for p in part.parameters()}
    shares = dict.fromkeys([1.0, *owners.values()])
    groups = ([p for p in parameters if owners.get(p, 1.0) == share] for share in shares)
    return [{"params": group, "share": share} for share, group in zip(shares, groups, strict=True) if group]


def make(name: str, settings: OptimiserConfig, parameters: list[dict[str, Any]]) -> optim.Optimizer:
    shared: dict[str, Any] = {"lr": settings.lr, "weight_decay": settings.weight_decay}
    stable: dict[str, Any] = {**shared, "eps": settings.epsilon}
    adaptive: dict[str, Any] = {**stable, "betas": settings.betas}
    moments: dict[str, Any] = {**adaptive, "amsgrad": settings.amsgrad, "fused": settings.fused or None}
    adam = TensorFlowAdam if settings.epsilon_unscaled else optim.Adam
    made: dict[str, Any] = {
        "sgd": lambda: optim.SGD(parameters, **shared, momentum=settings.momentum),
        # Averaging starts at once and takes no decay of its own: the switch is what was waited for.
        "asgd": lambda: optim.ASGD(parameters, **shared, t0=0, lambd=0.0),
        "adam": lambda: adam(parameters, **moments),
        "adamw": lambda: optim.AdamW(parameters, **moments),
        "adamax": lambda: optim.Adamax(parameters, **adaptive),
        "adadelta": lambda: optim.Adadelta(parameters, **stable, rho=settings.rho),
        "adagrad": lambda: optim.Adagrad(
            parameters, **stable, initial_accumulator_value=settings.accumulator
        ),
    }
    return made[name]()


class TensorFlowAdam(optim.Adam):
    """Adam as TensorFlow computes it: w -= lr sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + epsilon).

    torch divides sqrt(v) by sqrt(1 - b2^t) before it adds epsilon, so its epsilon has to be divided as well.
    """

    def __init__(self, parameters: list[dict[str, Any]], *, eps: float, **options: Any):
        super().__init__(parameters, eps=eps, **options)
        self.epsilon = eps

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            done = max((float(self.state[p]["step"]) for p in group["params"] if self.state[p]), default=0)
            group["eps"] = self.epsilon / math.sqrt(1 - group["betas"][1] ** (done + 1))
        return super().step(closure)


def set_rate(optimiser: optim.Optimizer, rate: float) -> None:
    for group in optimiser.param_groups:
        # Checkpoints of earlier versions have no shares.
        group["lr"] = rate * group.get("share", 1.0)


def gradient_norm(parameters: list[nn.Parameter]) -> Tensor:
    return nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])


def clip(parameters: list[nn.Parameter], norm: Tensor, settings: OptimiserConfig) -> None:
    """Scale the gradient, whose norm is `norm`, such that its norm is at most `settings.clip`."""
    if not settings.clip_exact:
        nn.utils.clip_grads_with_norm_(parameters, settings.clip, norm)
        return
    # As clip_by_global_norm of TensorFlow: a gradient within the limit is not changed at all.
    factor = settings.clip / norm.clamp(min=settings.clip)
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad.mul_(factor)


class Average:
    """An exponential moving average of weights: average = decay average + (1 - decay) weight."""

    def __init__(self, parameters: list[nn.Parameter], decay: float, warmup: bool = False):
        self.parameters, self.decay, self.warmup = parameters, decay, warmup
        self.shadows = [p.detach().clone() for p in parameters]

    @torch.no_grad()
    def update(self, step: int) -> None:
        decay = min(self.decay, (1 + step) / (10 + step)) if self.warmup else self.decay
        foreach_lerp_(self.shadows, [p.detach() for p in self.parameters], 1 - decay)

    def load(self, shadows: list[Tensor]) -> None:
        self.shadows = [new.to(old.device) for new, old in zip(shadows, self.shadows, strict=True)]


def averages(
    optimiser: optim.Optimizer, average: Average | None, parameters: list[nn.Parameter]
) -> list[Tensor] | None:
    """The weights that are evaluated in place of the trained ones, if there are any."""
    if average is not None:
        return average.shadows
    means = [optimiser.state.get(p, {}).get("ax") for p in parameters]
    if all(mean is None for mean in means):
        return None
    return [p.detach().clone() if mean is None else mean for p, mean in zip(parameters, means, strict=True)]


@contextmanager
def standing_in(parameters: list[nn.Parameter], weights: list[Tensor] | None) -> Iterator[None]:
    """Within this, the parameters have these values."""
    if weights is None:
        yield
        return
    kept = [p.detach().clone() for p in parameters]
    copy_into(parameters, weights)
    try:
        yield
    finally:
        copy_into(parameters, kept)


@torch.no_grad()
def copy_into(parameters: list[nn.Parameter], values: list[Tensor]) -> None:
    for parameter, value in zip(parameters, values, strict=True):
        parameter.copy_(value)
