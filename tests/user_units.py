"""Units as a user might write them: one that has it all, and odd ones that a kernel could get wrong.

python user_units.py name      compares the odd unit `name` by default with the reference
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import linnet

# What a unit in another file may read.
FACTOR = 0.5


class TwoStates(NamedTuple):
    h: Tensor
    c: Tensor


class LeakyCell(linnet.Cell):
    """Two states, kinks and jumps, a matrix with a bias and a parameter; new states in another order."""

    State = TwoStates
    recurrence = {"recurrent": "h"}

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None, **projection):
        super().__init__(input_size, hidden_size, {"h": hidden_size, "c": hidden_size})
        where = {"device": device, "dtype": dtype}
        self.input = linnet.Projection(
            input_size, {"a": hidden_size, "g": hidden_size}, bias, **where, **projection
        )
        self.recurrent = linnet.Projection(hidden_size, {"ah": hidden_size, "gh": hidden_size}, bias, **where)
        self.decay = nn.Parameter(torch.empty(hidden_size, **where))
        self.reset_parameters()

    def reset_parameters(self):
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.3)

    def step(self, a: Tensor, g: Tensor, ah: Tensor, gh: Tensor, h: Tensor, c: Tensor):
        gate = torch.exp(-torch.relu(g + gh))
        c = torch.where(a + ah > 0, gate * c + (1 - gate) * a, torch.tanh(self.decay) * c)
        y = torch.relu(c) - 0.1 * h
        return y + c, {"c": c, "h": y}


class Leaky(linnet.Recurrent, cell=LeakyCell):
    """A user's unit that fuses."""


class MovingCell(LeakyCell):
    """A step that reads channels in another order, and parts of a tensor."""

    def step(self, a: Tensor, g: Tensor, ah: Tensor, gh: Tensor, h: Tensor, c: Tensor):
        middle = torch.roll(a + ah, 2, -1)[..., 1:-1]
        ends = (g + gh).flip(-1)[..., [-1, 0]]
        y = 0.5 * h + 0.3 * torch.tanh(torch.cat([ends, middle], -1))
        return y, {"c": 0.9 * c + 0.1 * h, "h": y}


class Moving(linnet.Recurrent, cell=MovingCell):
    """A user's unit without a kernel that can be exported."""


class PowersCell(linnet.Cell):
    """An option that is part of the code of a kernel."""

    def __init__(
        self, input_size, hidden_size, bias=True, device=None, dtype=None, *, exponent=2.5, **projection
    ):
        super().__init__(input_size, hidden_size, {"h": hidden_size})
        where = {"device": device, "dtype": dtype}
        self.exponent = exponent
        self.input = linnet.Projection(input_size, {"a": hidden_size}, bias, **where, **projection)
        self.reset_parameters()

    def reset_parameters(self):
        for parameter in self.parameters():
            nn.init.normal_(parameter)

    def step(self, a: Tensor, h: Tensor):
        h = torch.tanh(a + (h * h + 1) ** -self.exponent)
        return h, {"h": h}


class Powers(linnet.Recurrent, cell=PowersCell):
    """A unit with an exponent."""


class SortingCell(LeakyCell):
    def step(self, a: Tensor, g: Tensor, ah: Tensor, gh: Tensor, h: Tensor, c: Tensor):
        h = torch.tanh(a + ah).sort(-1).values
        return h, {"h": h, "c": c + g}


class Sorting(linnet.Recurrent, cell=SortingCell):
    """A user's unit that does not."""


# ------------------------------------------------------------------------------------- odd units


class OddCell(linnet.Cell):
    """h = tanh(a + h) b, with something added by each of the units below."""

    recurrence = {}
    parts = ("a", "b")

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None, **projection):
        super().__init__(input_size, hidden_size, {"h": hidden_size})
        sizes = dict.fromkeys(self.parts, hidden_size)
        self.input = linnet.Projection(input_size, sizes, bias, device=device, dtype=dtype, **projection)
        self.more(hidden_size, {"device": device, "dtype": dtype})
        self.reset_parameters()

    def more(self, size, where):
        pass

    def reset_parameters(self):
        torch.manual_seed(0)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.5)

    def step(self, a, b, h):
        h = torch.tanh(a + h) * b
        return h, {"h": h}


ODD: dict[str, type[linnet.Recurrent]] = {}


def odd(name: str) -> Callable[[type[OddCell]], type[OddCell]]:
    def register(cell):
        ODD[name] = type(name, (linnet.Recurrent,), {"__doc__": cell.__doc__}, cell=cell)
        return cell

    return register


@odd("a learned number")
class LearnedNumber(OddCell):
    def more(self, size, where):
        self.w = nn.Parameter(torch.empty((), **where))

    def step(self, a, b, h):
        return super().step(a, b, h * self.w)


@odd("a parameter of one element")
class OneElement(LearnedNumber):
    def more(self, size, where):
        self.w = nn.Parameter(torch.empty(1, **where))


@odd("a learned number in a module")
class InAModule(LearnedNumber):
    def more(self, size, where):
        self.inner = nn.Module()
        self.inner.w = nn.Parameter(torch.empty((), **where))

    @property
    def w(self):
        return self.inner.w


@odd("an activation with a parameter")
class Activation(OddCell):
    def more(self, size, where):
        self.act = nn.PReLU(**where)

    def step(self, a, b, h):
        return super().step(a, b, self.act(h))


@odd("a parameter that is not there")
class NotThere(OddCell):
    def more(self, size, where):
        self.register_parameter("w", None)

    def step(self, a, b, h):
        return super().step(a, b, h if self.w is None else h * self.w)


@odd("a parameter that only the projection reads")
class Elsewhere(OddCell):
    def more(self, size, where):
        self.w = nn.Parameter(torch.empty(size, self.input_size, **where))

    def extra_inputs(self, x):
        return {"g": F.linear(x, self.w.to(x.device))}

    def step(self, a, b, g, h):
        return super().step(a + g, b, h)


@odd("a buffer of one number")
class Buffer(OddCell):
    def more(self, size, where):
        self.register_buffer("w", torch.tensor(0.3, **where))

    def step(self, a, b, h):
        return super().step(a, b, h * self.w)


@odd("a buffer of a number a channel")
class Buffers(Buffer):
    def more(self, size, where):
        self.register_buffer("w", torch.linspace(0, 1, size, **where))


@odd("a buffer that kernels read")
class ConstantBuffer(Buffers):
    constant_buffers = ("w",)


@odd("a part that the step does not read")
class Unread(OddCell):
    parts = ("a", "unread", "b")


@odd("parts in another order")
class Order(OddCell):
    parts = ("b", "a")


@odd("a step that takes all by name")
class ByName(OddCell):
    def step(self, **known):
        return OddCell.step(self, known["a"], known["b"], known["h"])


@odd("one gate for all channels")
class OneGate(OddCell):
    recurrence = {"recurrent": "h"}

    def more(self, size, where):
        self.recurrent = linnet.Projection(size, {"g": 1}, True, **where)

    def step(self, a, b, g, h):
        return super().step(a, b, torch.sigmoid(g) * h)


@odd("one number of x for all channels")
class OneNumber(OneGate):
    recurrence = {}

    def more(self, size, where):
        pass

    def extra_inputs(self, x):
        return {"g": x.mean(-1, keepdim=True)}


@odd("a module beside the projection")
class Beside(OneNumber):
    def more(self, size, where):
        self.gate = nn.Linear(self.input_size, size, **where)

    def extra_inputs(self, x):
        return {"g": self.gate(x)}


@odd("a state that is cut from its past")
class Detached(OddCell):
    def step(self, a, b, h):
        h = torch.tanh(a + h) * b
        return h, {"h": h.detach()}


@odd("an output of zeros and ones")
class Firing(OddCell):
    def step(self, a, b, h):
        h = torch.tanh(a + h) * b
        return (h > 0).to(h.dtype), {"h": h}


@odd("two matrices that read the same state")
class TwoMatrices(OddCell):
    recurrence = {"first": "h", "second": "h"}

    def more(self, size, where):
        self.first = linnet.Projection(size, {"p": size}, True, **where)
        self.second = linnet.Projection(size, {"q": size}, False, **where)

    def step(self, a, b, p, q, h):
        return super().step(a + 0.3 * p, b * torch.sigmoid(q), h)


@odd("an output of its own")
class OwnOutput(OddCell):
    """It is not the state that `step` returns as its output, and not zero where that is."""

    def step(self, a, b, h):
        h = torch.tanh(a + h) * b
        return b * h, {"h": h}

    def output(self, y, state):
        return 2 * y - state["h"] + 1


@odd("an output of its own, that is wider than its states")
class WideOutput(OddCell):
    def __init__(self, input_size, hidden_size, **options):
        super().__init__(input_size, hidden_size, **options)
        self.output_size = 2 * hidden_size

    def output(self, y, state):
        return torch.cat([y + 1, state["h"]], -1)


def run(rnn: Any, x: Tensor) -> list[Tensor]:
    y, state = rnn(x)
    parameters = list(rnn.parameters())
    loss = y.sin().sum() + state.sin().sum()
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    return [y.detach(), state.detach(), *gradients]


def compare(name: str) -> None:
    """By whatever way it runs by default: the reference's numbers."""
    rnn = ODD[name](4, 37, dtype=torch.double)
    x = torch.randn(7, 3, 4, dtype=torch.double, generator=torch.Generator().manual_seed(0))
    ours = run(rnn, x)
    with linnet.backend("reference"):
        theirs = run(rnn, x)
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)


if __name__ == "__main__":
    warnings.simplefilter("ignore", linnet.FallbackWarning)
    for argument in sys.argv[1:]:
        print(argument, flush=True)
        compare(argument)
