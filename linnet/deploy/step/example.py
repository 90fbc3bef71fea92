"""The step of any module whose call is forward(x, state) -> y, new state, from an example of x and state.

The input is a tensor of any shape with a batch of one, or the number of a token. The state is a tensor, or
tuples, lists and dicts of tensors; it is the initial state of the exported model.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from linnet.deploy.step.models import CannotExport, ModelStep
from linnet.deploy.step.names import identifier
from linnet.deploy.step.program import unique
from linnet.program.unit import Named

# x and state, as the module takes them.
Example = tuple[Tensor, Any]


def step_of_example(model: nn.Module, example: Example) -> ModelStep:
    x, state = checked_example(example)
    start = start_of(state)
    reads_token = not x.is_floating_point()

    def run(given: Tensor, parts: Named) -> tuple[Tensor, Named]:
        result = model(given.reshape(x.shape), put_together(state, iter(parts.values())))
        if not isinstance(result, tuple | list) or len(result) != 2 or not isinstance(result[0], Tensor):
            raise CannotExport(
                f"forward(x, state) of {type(model).__name__} returns {described(result)}; expected a pair "
                "of a tensor and the new state"
            )
        return result[0], same_parts(start, result[1])

    size = 0 if reads_token else x.numel()
    return ModelStep(size, 0, None, start, run, reads_token=reads_token)


def checked_example(example: Example) -> Example:
    if not isinstance(example, tuple | list) or len(example) != 2 or not isinstance(example[0], Tensor):
        raise CannotExport(f"example is (x, state), as forward takes them; got {described(example)}")
    x, state = example
    if x.is_floating_point() and x.dtype == torch.float32 and x.numel():
        return x.detach(), state
    if x.dtype in (torch.int64, torch.int32) and x.numel() == 1:
        return x, state
    raise CannotExport(
        "x of the example is a float32 tensor with a batch of one, or one int64 number, a token; got "
        f"{x.dtype} of the shape {tuple(x.shape)}"
    )


def named_parts(state: Any) -> Named:
    """The tensors of a state by names that C and JavaScript allow: those of dicts, and numbers in tuples."""
    found: Named = {}
    for path, leaf in leaves_of(state, ""):
        path = path or "0"
        name = f"state{path}" if path[0].isdigit() else path
        found[unique(identifier(name), found)] = leaf
    return found


def leaves_of(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The leaves with the keys that lead to them; the numbers of a named tuple are those of a tuple."""
    if isinstance(value, dict):
        # In the order of the keys: a new state may have another order than the old one.
        pairs = sorted(value.items(), key=lambda item: str(item[0]))
    elif isinstance(value, tuple | list):
        pairs = list(enumerate(value))
    else:
        yield path, value
        return
    for key, part in pairs:
        yield from leaves_of(part, f"{path}_{key}" if path else str(key))


def put_together(like: Any, tensors: Iterator[Tensor]) -> Any:
    """A state like the example, of other tensors in the order of `leaves_of`."""
    if isinstance(like, dict):
        made = {key: put_together(like[key], tensors) for key in sorted(like, key=str)}
        return {key: made[key] for key in like}
    if isinstance(like, tuple | list):
        parts = [put_together(part, tensors) for part in like]
        return type(like)(*parts) if hasattr(like, "_fields") else type(like)(parts)
    return next(tensors)


def start_of(state: Any) -> Named:
    start = named_parts(state)
    for leaf in start.values():
        if not isinstance(leaf, Tensor) or leaf.dtype != torch.float32 or not leaf.numel():
            raise CannotExport(
                "the state of the example is a float32 tensor, or tuples, lists and dicts of such tensors; "
                f"got {described(leaf)} in it"
            )
    if not start:
        raise CannotExport("the state of the example has no tensor in it; a step needs a state")
    return {name: leaf.detach().clone() for name, leaf in start.items()}


def same_parts(start: Named, new: Any) -> Named:
    """The new state by name; it must be put together as the old one."""
    found = named_parts(new)
    if found.keys() != start.keys() or not all(isinstance(each, Tensor) for each in found.values()):
        raise CannotExport(
            f"the new state is {described(new)}, with the parts {', '.join(found)}; expected the parts of "
            f"the example, {', '.join(start)}: return the state in the form in which forward takes it"
        )
    for name, old in start.items():
        if found[name].shape != old.shape:
            raise CannotExport(
                f"the new state {name} has the shape {tuple(found[name].shape)}, and that of the example "
                f"{tuple(old.shape)}; the shapes must be the same at every step"
            )
    return found


def described(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of {value.dtype} of the shape {tuple(value.shape)}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {', '.join(map(described, value)) or 'nothing'}"
    return f"{type(value).__name__}"
