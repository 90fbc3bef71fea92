"""A model of a file as a module of torch."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from linnet.base.errors import InputError, InputTypeError
from linnet.base.suggest import no_such
from linnet.deploy.read.build import Builder, check_operators
from linnet.deploy.read.errors import UnreadableModel
from linnet.deploy.read.graph import Graph, Port
from linnet.deploy.read.limits import Account, size_of
from linnet.deploy.read.run import Interpreter, Plan

MOST_PLANS = 16
"""Plans that are kept, one for each set of input shapes."""


class FileModel(nn.Module):
    """The model of a file, for inference on CPUs: model(*inputs) or model(name=input) -> its outputs.

    One output is a tensor, several are a tuple in the order of `output_names`. `input_names` are the names of
    the inputs, and `inputs` also has their types and shapes.
    """

    def __init__(self, graph: Graph, version: int, fixed: Mapping[str, Any], account: Account):
        super().__init__()
        check_operators(graph, version)
        self.limit = account.limit
        self.version = version
        ports = {port.name: port for port in graph.inputs}
        self.fixed = {name: fixed_value(ports, name, value) for name, value in fixed.items()}
        self.graph = Builder(self, version, account).build(graph, ChainMap(self.fixed))
        self.plans: dict[Any, Plan] = {}
        self.eval()

    @property
    def inputs(self) -> list[Port]:
        return [port for port in self.graph.inputs if port.name not in self.fixed]

    @property
    def input_names(self) -> list[str]:
        return [port.name for port in self.inputs]

    @property
    def output_names(self) -> list[str]:
        return list(self.graph.outputs)

    def forward(self, *inputs: Tensor, **named: Tensor) -> Any:
        given = self.checked(self.in_order(inputs, named))
        key = tuple((each.shape, each.dtype) for each in given)
        plan = None if any(is_symbolic(each) for each in given) else self.plans.get(key)
        outputs = self.first_call(key, given) if plan is None else plan.run(given)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def first_call(self, key: Any, inputs: list[Tensor]) -> list[Tensor]:
        """Run with all checks, and keep the plan for calls with inputs of the same shapes."""
        if torch.compiler.is_compiling():
            raise UnreadableModel(
                "a tracer needs a model that has been called with tensors of the same, fixed shapes; "
                "call the model once before you export or compile it"
            )
        account = Account(self.limit)
        account.take(size_of(self.state_dict().values()), "the weights of the model")
        runner = Interpreter(self, self.version, account)
        outputs = runner.run(self.graph, inputs, self.fixed)
        if (
            len(self.plans) < MOST_PLANS
            and size_of(runner.plan.constants.values()) <= self.limit // MOST_PLANS
        ):
            self.plans[key] = runner.plan
        return outputs

    # ------------------------------------------------------------------------------------- inputs

    def in_order(self, inputs: tuple[Tensor, ...], named: dict[str, Tensor]) -> list[Tensor]:
        names = self.input_names
        unknown = [name for name in named if name not in names[len(inputs) :]]
        if unknown or len(inputs) + len(named) != len(names):
            raise TypeError(
                f"the model takes {len(names)} inputs, {', '.join(names)}; got {len(inputs)} by position and "
                f"{', '.join(named) or 'none'} by name"
            )
        return [*inputs, *(named[name] for name in names[len(inputs) :])]

    def checked(self, inputs: list[Tensor]) -> list[Tensor]:
        for port, tensor in zip(self.inputs, inputs, strict=True):
            if not isinstance(tensor, Tensor) or tensor.dtype != (port.dtype or tensor.dtype):
                found = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
                raise InputTypeError(f"{port.name} is a tensor of {port.dtype}; got {found}")
            if port.shape is not None and not fits(tensor, port.shape):
                wanted = ", ".join(str(each) if each is not None else "?" for each in port.shape)
                raise InputError(f"{port.name} has the shape ({wanted}); got {tuple(tensor.shape)}")
        return inputs


def fixed_value(ports: Mapping[str, Port], name: str, value: Any) -> Tensor:
    if name not in ports:
        raise ValueError(no_such("input", name, ports))
    tensor = torch.as_tensor(value)
    return tensor if ports[name].dtype is None else tensor.to(ports[name].dtype)


def fits(tensor: Tensor, shape: tuple[int | str | None, ...]) -> bool:
    if tensor.dim() != len(shape):
        return False
    return all(not isinstance(n, int) or n == found for n, found in zip(shape, tensor.shape, strict=True))


def is_symbolic(tensor: Tensor) -> bool:
    return not all(isinstance(length, int) for length in tensor.shape)
