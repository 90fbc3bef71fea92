"""What models of others do in a step, in terms of what a graph has: more than the steps of units."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.deploy.step.convolutions import (
    adaptive_max_pooled,
    average_pooled,
    convolution,
    max_pooled,
)
from linnet.program.record import (
    STRUCTURAL,
    added_product,
    moved,
    padded,
    product,
    reduced,
    vector_norm,
)
from linnet.program.trace import NotPointwise, user_line
from linnet.program.views import View

# The recorder of models; it is defined in record.py, which imports this file.
Recorder = Any


# ---------------------------------------------------------------------------------------- products


def matrix_product(recorder: Recorder, x: Tensor, matrix: Tensor) -> View:
    """x [rows, inputs] times [inputs, outputs]; either of them, or both, may depend on the input."""
    if not recorder.is_dynamic(x):
        return transposed(product(recorder, matrix.T, x.T))
    return (
        product(recorder, x, matrix) if recorder.is_matrix(matrix) else sums(recorder, x[None], matrix[None])
    )


def transposed(view: View) -> View:
    return View(view.base, view.offset, view.shape[::-1], view.strides[::-1])


def sums(recorder: Recorder, x: Tensor, y: Tensor) -> View:
    """[n, rows, inputs] times [n, inputs, outputs] in a loop."""
    left, right = recorder.number_of(x[..., None]), recorder.number_of(y[:, None])
    made = reduced(recorder, "sum", recorder.add("mul", left, right), [2])
    return made.reshaped(made.shape[1:]) if made.shape[0] == 1 else made


def batched_product(recorder: Recorder, x: Tensor, y: Tensor) -> View:
    if len(x) > 1:
        return sums(recorder, x, y)
    made = matrix_product(recorder, x[0], y[0])
    return View(made.base, made.offset, (1, *made.shape), (0, *made.strides))


def scalable_product(recorder: Recorder, bias: Tensor, x: Tensor, matrix: Tensor, **options: Any) -> View:
    """addmm, whose outputs a norm may scale."""
    made = added_product(recorder, bias, x, matrix, **options)
    if recorder.is_matrix(matrix) and not recorder.is_dynamic(bias):
        view = recorder.operand(x)
        recorder.scalable = lambda scale, shift: recorder.product_node(
            view,
            recorder.derived((matrix * scale).T.contiguous(), matrix).T,
            recorder.derived(bias * scale + shift, bias),
            len(x),
        )
    return made


def embedded(recorder: Recorder, table: Tensor, token: Tensor, *_: Any) -> View:
    """The row of a token: the product of its one-hot vector, which is not computed."""
    if not recorder.is_token(token) or recorder.is_dynamic(table):
        raise NotPointwise(
            "an embedding is looked up by a number that the step computes; the input of the model can be the "
            f"number of a token: example=(torch.tensor([3]), state){user_line()}"
        )
    made = recorder.product_node(recorder.one_hot(len(table)), table, None, 1)
    return made.reshaped((*token.shape, table.shape[1]))


# ------------------------------------------------------------------------------------------- norms


def batch_norm(
    recorder: Recorder,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """A scale and a shift for each channel, in the weights of the convolution or product before it."""
    if training or mean is None or variance is None:
        return NotImplemented
    scale = (1 if weight is None else weight) / torch.sqrt(variance + eps)
    shift = (0 if bias is None else bias) - mean * scale
    return scaled_channels(recorder, x, scale, shift, mean if weight is None else weight), None, None


def scaled_channels(recorder: Recorder, x: Tensor, scale: Tensor, shift: Tensor, origin: Tensor) -> View:
    view = recorder.number_of(x)
    fold = recorder.scalable_products.get(view.base)
    if fold is not None and view.size == fold.size:
        return fold.scaled(scale, shift).reshaped(view.shape) if x.dim() == 2 else fold.scaled(scale, shift)
    shape = (len(scale), *[1] * (x.dim() - 2))
    factor, term = (recorder.named_constant(recorder.derived(t, origin).view(shape)) for t in (scale, shift))
    return recorder.add("add", recorder.add("mul", view, factor), term)


# ----------------------------------------------------------------------------- maxima and padding


def largest(recorder: Recorder, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    made = reduced(recorder, "amax", recorder.number_of(x), dim, keepdim)
    return made if dim is None else (made, None)


def smallest(recorder: Recorder, x: Tensor, dim: Any = None, keepdim: bool = False) -> View:
    negative = recorder.add("neg", recorder.number_of(x))
    return recorder.add("neg", reduced(recorder, "amax", negative, dim, keepdim))


def smallest_and_place(recorder: Recorder, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    made = smallest(recorder, x, dim, keepdim)
    return made if dim is None else (made, None)


def padded_by(recorder: Recorder, x: Tensor, pad: Sequence[int], value: float = 0) -> View:
    if not value:
        return padded(recorder, x, pad)
    # `value` in the frame, and what is within it.
    frame = F.pad(torch.zeros(x.shape), list(pad), value=value)
    return recorder.add(
        "add", padded(recorder, x, pad), recorder.named_constant(recorder.fixed_tensor(frame))
    )


def moved_numbers(func: Callable[..., Tensor]) -> Callable[..., View]:
    """As `moved`, for an operation that torch has for floating-point numbers only."""
    return moved(lambda places, *args, **kwargs: func(places.double(), *args, **kwargs).long())


def new_number(value: float) -> Callable[..., float]:
    return lambda *_, **__: value


def norm(
    recorder: Recorder, x: Tensor, order: Any = 2, dim: Any = None, keepdim: bool = False, **_: Any
) -> View:
    return vector_norm(recorder, x, 2 if order is None else order, dim, keepdim)


ATEN = torch.ops.aten
OF_MODELS: dict[str, Callable[..., Any]] = {
    **STRUCTURAL,
    "mm": matrix_product,
    "addmm": scalable_product,
    "bmm": batched_product,
    "embedding": embedded,
    "convolution": convolution,
    "native_batch_norm": batch_norm,
    "_native_batch_norm_legit_no_training": lambda r, x, w, b, mean, var, momentum, eps: batch_norm(
        r, x, w, b, mean, var, False, momentum, eps
    ),
    "max_pool2d_with_indices": max_pooled,
    "avg_pool2d": average_pooled,
    "adaptive_max_pool2d": adaptive_max_pooled,
    "max": largest,
    "min": smallest_and_place,
    "amin": smallest,
    "norm": norm,
    "constant_pad_nd": padded_by,
    **{
        name: moved_numbers(getattr(ATEN, name))
        for name in (
            *("reflection_pad1d", "reflection_pad2d", "replication_pad1d", "replication_pad2d"),
            *("upsample_nearest1d", "upsample_nearest2d"),
        )
    },
    **{"new_zeros": new_number(0.0), "new_ones": new_number(1.0)},
    "new_full": lambda recorder, x, size, value, **_: float(value),
}


# --------------------------------------------------------------- operations by torch's other ones


def erf(x: Tensor) -> Tensor:
    """Abramowitz and Stegun, 7.1.26: the absolute error is at most 1.5e-7, about the rounding of float32."""
    t = 1 / (1 + 0.3275911 * x.abs())
    series = 1.061405429 * t - 1.453152027
    for factor in (1.421413741, -0.284496736, 0.254829592):
        series = series * t + factor
    return torch.sign(x) * (1 - series * t * torch.exp(-x * x))


def softplus(x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    return torch.where(x * beta > threshold, x, torch.log1p(torch.exp(x * beta)) / beta)


def separate_parts(split: Callable[..., Sequence[Tensor]]) -> Callable[..., list[Tensor]]:
    """Parts with memory of their own: torch's recurrent layers change them in place."""
    return lambda *args, **kwargs: [part.clone() for part in split(*args, **kwargs)]


def lstm_layer(
    x: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor,
    bias_hh: Tensor,
    h: Tensor,
    c: Tensor,
    reverse: bool,
    *_: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A layer of nn.LSTM over x [T, 1, inputs], by its equations, where torch calls oneDNN."""
    shapes, outputs = (h.shape, c.shape), []
    h, c = h.view(1, -1), c.view(1, -1)
    for x_t in reversed(x.unbind()) if reverse else x.unbind():
        gates = torch.addmm(bias_ih, x_t, weight_ih.T) + torch.addmm(bias_hh, h, weight_hh.T)
        i, f, g, o = gates.chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        outputs.append(h)
    y = torch.stack(outputs[::-1] if reverse else outputs)
    return y, h.view(shapes[0]), c.view(shapes[1]), x.new_zeros(0)


# Where torch has no decomposition, or one that cannot be recorded.
REWRITTEN: dict[str, Callable[..., Any]] = {
    "erf": erf,
    "log2": lambda x: torch.log(x) * (1 / math.log(2)),
    "log10": lambda x: torch.log(x) * (1 / math.log(10)),
    "exp2": lambda x: torch.exp(x * math.log(2)),
    "softplus": softplus,
    "floor_divide": lambda x, y: torch.floor(x / y),
    "remainder": lambda x, y: x - torch.floor(x / y) * y,
    "hypot": lambda x, y: torch.sqrt(x * x + y * y),
    "unsafe_split": separate_parts(torch.split),
    "unsafe_split_with_sizes": separate_parts(torch.split),
    "mkldnn_rnn_layer": lstm_layer,
}

# What to do instead of an operation that cannot be exported.
ADVICE = {
    "copy": ": it changes a part of a tensor in place; make a new tensor, by torch.cat or F.pad",
    **dict.fromkeys(
        ("topk", "sort", "argmax"), ": return what it reads, and sort or choose outside of the model"
    ),
    **dict.fromkeys(
        ("_fft_r2c", "stft"), ": write the Fourier transform as a convolution with a fixed basis"
    ),
}
