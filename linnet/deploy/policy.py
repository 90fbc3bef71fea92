"""Policies of robots as ONNX files, with the names that robot stacks expect."""

from __future__ import annotations

from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn

from linnet.base.torch_private import tree_leaves, tree_map_only
from linnet.deploy.onnx import OneStep, check_packages, write
from linnet.deploy.torch_layers import with_linnet_layers
from linnet.recurrent.modes import evaluating


def export_policy(
    policy: nn.Module, path: str | PathLike[str], obs: Tensor, state: Any
) -> torch.onnx.ONNXProgram:
    """Write one step of a recurrent policy to the file `path`.

        linnet.export_policy(policy, "policy.onnx", obs, (h, c))

    policy   a module that maps the observations of one step and a state to actions and the new state
    obs      [batch, observations]: an example. The file is for this batch size, as programs for robots expect
    state    an example, in any structure of tensors

    The inputs of the file are `obs`, `h_in` and, for a pair, `c_in`; the outputs are `actions`, `h_out` and
    `c_out`. The tensors of a named tuple have their own names instead of h and c. The file has no loop.
    Returns the result of torch.onnx.export.
    """
    check_packages()
    step = PolicyStep(with_linnet_layers(policy))
    step.check(obs, state)
    names = names_of_state(state)
    example = tree_map_only(Tensor, Tensor.detach, (obs, state))
    shapes = tree_map_only(Tensor, lambda _: None, example)
    inputs, outputs = (["obs", *(f"{n}_in" for n in names)], ["actions", *(f"{n}_out" for n in names)])
    return write(step, path, (example, {}), shapes, (inputs, outputs))


class PolicyStep(OneStep):
    """A policy, whose observations have no dimension of time."""

    def forward(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        return self.model(x, state)

    def check(self, obs: Tensor, state: Any) -> None:
        """Run the policy once, and raise if its results are not actions and a state."""
        with evaluating(self.model), torch.no_grad():
            results = self.model(obs, state)
        if not isinstance(results, tuple) or len(results) != 2 or not isinstance(results[0], Tensor):
            raise TypeError(
                f"a policy returns the pair (actions, state); {type(self.model).__name__} returned "
                f"{described(results)}"
            )
        before, after = shapes_in(state), shapes_in(results[1])
        if before != after:
            raise ValueError(
                f"the state that {type(self.model).__name__} returns must have the shapes of the one that it "
                f"is given, {before}; got {after}"
            )


def described(results: Any) -> str:
    return f"a tuple of {len(results)}" if isinstance(results, tuple) else type(results).__name__


def shapes_in(state: Any) -> list[tuple[int, ...]]:
    return [tuple(leaf.shape) for leaf in tree_leaves(state)]


def names_of_state(state: Any) -> list[str]:
    if isinstance(state, Tensor):
        return ["h"]
    if type(state) in (tuple, list) and len(state) == 2 and all(isinstance(s, Tensor) for s in state):
        return ["h", "c"]
    return [name.removeprefix("_") for name in OneStep.names_of_states(state)]
