"""Modules of users, whose steps are exported by an example: what is within a frame, and what has a state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import linnet
from linnet.deploy.causal import Causal
from linnet.deploy.step.build import outputs_of
from linnet.models.forecaster import Forecaster, ForecasterConfig, Sizes
from linnet.models.stream_step import Axis, StreamStep
from tools.step_cases import Case


class Frames(nn.Module):
    """Several functions of a frame, side by side; the state is a decaying mean of their outputs."""

    def __init__(self, *functions: Callable[[Tensor], Tensor]):
        super().__init__()
        self.parts = nn.ModuleList(each for each in functions if isinstance(each, nn.Module))
        self.functions = functions

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.cat([function(x).flatten() for function in self.functions])
        state = 0.5 * state + y.mean()
        return y + state, state


class Recurring(nn.Module):
    """A recurrent layer or cell of torch or Linnet, and a head."""

    def __init__(self, rnn: nn.Module, size: int):
        super().__init__()
        self.rnn, self.head = rnn, nn.Linear(size, 3)

    def forward(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        made = self.rnn(x, state)
        if isinstance(self.rnn, nn.RNNCellBase):
            y = made[0] if isinstance(made, tuple) else made
            return self.head(y), made
        return self.head(made[0]), made[1]


class Reader(nn.Module):
    """Tokens, by an embedding, with a state of tuples in a dict, and names that are words of C."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.cell, self.volatile = nn.Embedding(11, 4), nn.GRUCell(4, 6), nn.Linear(6, 11)
        self.short = nn.Parameter(torch.randn(11))

    def start(self) -> dict[str, Any]:
        return {"int": torch.zeros(1, 6), "0": (torch.ones(1, 6),)}

    def forward(self, token: Tensor, state: Any) -> tuple[Tensor, Any]:
        h = self.cell(self.embedding(token), state["int"])
        y = self.volatile(h + state["0"][0]).log_softmax(-1) * self.short
        return y, {"0": (state["int"],), "int": h}


class Denoiser(nn.Module):
    """Causal convolutions over time and over frequencies, a GRU, and a transposed convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Causal(nn.Conv1d(8, 6, 3, dilation=2))
        self.second = Causal(nn.Conv2d(1, 2, (2, 3), padding=(0, 1)))
        self.norm, self.gru = trained_norm(nn.BatchNorm2d(2)), linnet.GRU(16, 5)
        self.up = nn.ConvTranspose1d(1, 1, 4, stride=2, padding=1)

    def start(self) -> dict[str, Any]:
        buffers = {"frames": self.first.start(), "spectra": self.second.start(frequencies=8)}
        return {**buffers, "h": torch.zeros(1, 1, 5)}

    def forward(self, x: Tensor, state: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
        a, frames = self.first(x, state["frames"])
        b, spectra = self.second(x[:, None], state["spectra"])
        y, h = self.gru(F.relu(self.norm(b[:, :, None])).reshape(1, 1, -1), state["h"])
        made = torch.cat([a, self.up(y[0][:, None])[:, 0]], -1)
        return made, {"spectra": spectra, "h": h, "frames": frames}


def trained_norm(norm: Any) -> Any:
    """With other numbers than those of a new norm."""
    for tensor in (*norm.parameters(), *norm.buffers()):
        if tensor.is_floating_point():
            nn.init.uniform_(tensor, 0.5, 2)
    return norm


CONVOLUTIONS: Sequence[Callable[[], nn.Module]] = (
    lambda: nn.Conv1d(4, 3, 3),
    lambda: nn.Conv1d(4, 3, 3, stride=2, padding=1, bias=False),
    lambda: nn.Conv1d(4, 5, 3, padding=4, dilation=3),
    lambda: nn.Conv1d(4, 6, 3, groups=2),
    lambda: nn.Conv1d(4, 4, 5, groups=4, padding=2),
    lambda: nn.Conv1d(4, 8, 5, groups=4),
    lambda: nn.Conv1d(4, 3, 3, padding="same", padding_mode="reflect"),
    lambda: nn.Conv1d(4, 3, 12),
    lambda: nn.ConvTranspose1d(4, 3, 4, stride=2),
    lambda: nn.ConvTranspose1d(4, 6, 5, stride=3, padding=1, output_padding=1, groups=2, dilation=2),
    lambda: nn.Sequential(nn.Conv1d(4, 3, 3), trained_norm(nn.BatchNorm1d(3)), nn.ReLU()),
    lambda: nn.Sequential(nn.Conv1d(4, 4, 3, groups=4, bias=False), trained_norm(nn.BatchNorm1d(4))),
    lambda: nn.Sequential(nn.ReLU(), trained_norm(nn.BatchNorm1d(4))),
)
CONVOLUTIONS_2D: Sequence[Callable[[], nn.Module]] = (
    lambda: nn.Conv2d(2, 3, (3, 2), padding=(1, 0), stride=(2, 1), dilation=(1, 2)),
    lambda: nn.Conv2d(2, 2, 3, padding=1, groups=2),
    lambda: nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1),
    lambda: nn.Sequential(nn.Conv2d(2, 3, 3), trained_norm(nn.BatchNorm2d(3)), nn.MaxPool2d(2), nn.Flatten()),
    lambda: nn.AvgPool2d((2, 3), padding=(0, 1)),
    lambda: nn.AdaptiveAvgPool2d((1, 3)),
    lambda: nn.Upsample(scale_factor=2),
    lambda: nn.ReflectionPad2d((1, 0, 2, 1)),
)
POOLING: Sequence[Callable[[], nn.Module]] = (
    *(lambda: nn.MaxPool1d(2), lambda: nn.MaxPool1d(3, 2, 1), lambda: nn.MaxPool1d(5, 3, ceil_mode=True)),
    *(lambda: nn.AvgPool1d(2), lambda: nn.AvgPool1d(3, 2, 1)),
    *(lambda: nn.AdaptiveAvgPool1d(1), lambda: nn.AdaptiveAvgPool1d(5), lambda: nn.AdaptiveMaxPool1d(4)),
    *(
        lambda: nn.ReflectionPad1d((2, 3)),
        lambda: nn.ReplicationPad1d(2),
        lambda: nn.ConstantPad1d((1, 2), 3.5),
    ),
    lambda: nn.Upsample(scale_factor=2),
)
NORMS: Sequence[Callable[[], nn.Module]] = (
    *(
        lambda: nn.LayerNorm(12),
        lambda: nn.RMSNorm(12),
        lambda: nn.GroupNorm(2, 4),
        lambda: nn.InstanceNorm1d(4),
    ),
    *(
        nn.GELU,
        lambda: nn.GELU(approximate="tanh"),
        lambda: nn.PReLU(4),
        nn.ELU,
        nn.LeakyReLU,
        nn.SiLU,
        nn.Mish,
    ),
    *(nn.Softplus, nn.Hardtanh, nn.Hardsigmoid, nn.Hardswish, nn.ReLU6, nn.Softsign, lambda: nn.GLU(1)),
    *(lambda: nn.Softmax(-1), lambda: nn.LogSoftmax(1), nn.Dropout),
)
MATRIX = torch.linspace(-1, 1, 20).view(5, 4)
FUNCTIONS: Sequence[Callable[[Tensor], Tensor]] = (
    lambda x: torch.cat([x, x[:, 1:3] * 2], 1),
    lambda x: torch.stack([x, x.abs()], -1),
    lambda x: x[:, ::2, 3:-2],
    lambda x: x.narrow(1, 1, 2).permute(2, 0, 1).reshape(1, -1),
    lambda x: x.index_select(1, torch.tensor([2, 0])),
    lambda x: torch.cat([x.mean(-1), x.sum(-1), x.amax(-1), x.max(-1).values, x.min(-1)[0], x.std(-1)], 1),
    lambda x: (x.abs() + 1).log() + x.exp() + (x * x).sqrt() + x.abs().pow(0.3) + torch.log10(x.abs() + 0.1),
    lambda x: x / x.norm(dim=1, keepdim=True).clamp(min=1e-5),
    lambda x: torch.clamp((x - 0.3) / 1.7, -1, 1),
    lambda x: torch.hypot(x[:, :2], x[:, 2:]),
    lambda x: MATRIX @ x,
    lambda x: torch.einsum("bct,oc->bot", x, MATRIX),
    lambda x: torch.softmax(x @ x.transpose(1, 2), -1) @ x,
    lambda x: x.unfold(2, 4, 2).sum(-1),
    lambda x: torch.where(x > 0, x, x * 0.1).roll(1, -1) + x.flip(1),
    lambda x: torch.cat([x, x.new_zeros(1, 2, 12), torch.ones_like(x)], 1),
    lambda x: x.chunk(2, 1)[0] * x.chunk(2, 1)[1].sigmoid(),
    lambda x: torch.where(x == x, x // 0.7, 0.0) + x % 0.7 + F.softplus(3 * x) + F.gelu(x),
)


def framed(name: str, made: Sequence[Callable[..., Any]], shape: Sequence[int], steps: int) -> Case:
    model = Frames(*(each() if made is not FUNCTIONS else each for each in made))
    return by_example(name, model, torch.zeros(*shape), torch.zeros(1), steps)


def by_example(name: str, model: nn.Module, x: Tensor, state: Any, steps: int) -> Case:
    source = torch.Generator().manual_seed(0)
    inputs = torch.randn(steps, x.numel(), generator=source)
    if not x.is_floating_point():
        inputs = torch.randint(0, 11, (steps,), generator=source)
    example = (x, state)
    return Case(name, model, inputs, outputs_of(model, inputs, example), example)


def recurring(rnn: nn.Module, size: int, x: Tensor, state: Any, steps: int) -> Case:
    return by_example(
        f"{type(rnn).__module__.split('.')[0]}-{type(rnn).__name__}", Recurring(rnn, size), x, state, steps
    )


def forecaster() -> StreamStep:
    """One value in, one forecast out."""
    sizes = Sizes(horizon=3, context=8, season=4, known=1, gaps=True)
    model = Forecaster(sizes, ForecasterConfig(hidden_size=6, decoder="steps"))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    axes = [Axis("step", ("1", "2", "3")), Axis("level", tuple(map(str, model.answer.levels)))]
    names = ["value", "known", "known+1", "known+2", "known+3"]
    return StreamStep(model, names, axes, torch.randn(20, sizes.inputs)).eval()


def frames(steps: int) -> list[Case]:
    """Every operation, some in one module, and every recurrent layer and cell."""
    torch.manual_seed(1)
    denoiser, step = Denoiser(), forecaster()
    h, cell_h, x = torch.zeros(2, 1, 4), torch.zeros(1, 4), torch.zeros(1, 1, 5)
    pair, cell_pair = (h, h.clone()), (cell_h, torch.ones(1, 4))
    return [
        framed("convolutions", CONVOLUTIONS, (1, 4, 12), steps),
        framed("convolutions-2d", CONVOLUTIONS_2D, (1, 2, 9, 8), steps),
        framed("pooling", POOLING, (1, 4, 12), steps),
        framed("norms", NORMS, (1, 4, 12), steps),
        framed("functions", FUNCTIONS, (1, 4, 12), steps),
        recurring(nn.LSTM(5, 4, 2), 4, x, pair, steps),
        recurring(nn.GRU(5, 4, 2), 4, x, h, steps),
        recurring(nn.RNN(5, 4, 2), 4, x, h, steps),
        recurring(linnet.LSTM(5, 4, 2), 4, x, pair, steps),
        recurring(nn.LSTMCell(5, 4), 4, x[0], cell_pair, steps),
        recurring(nn.GRUCell(5, 4), 4, x[0], cell_h, steps),
        recurring(nn.RNNCell(5, 4), 4, x[0], cell_h, steps),
        by_example("reader", Reader(), torch.tensor([3]), Reader().start(), steps),
        by_example("denoiser", denoiser, torch.zeros(1, 8), denoiser.start(), steps),
        by_example("forecaster", step, *step.example, steps),
    ]
