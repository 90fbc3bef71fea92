"""Vectors of words in their context, by an encoder of `transformers`, as further inputs of a model.

The encoder gives each word a vector in each of its layers. `ContextVectors` is the part of a model: it takes
the last layer, or learns a mix of all layers as ELMo does (Peters et al. 2018):

    vector = gamma * sum over layers of softmax(w)_l h_l

An encoder that is tuned is a part of the model, too; its vectors have gradients. `encode` runs an encoder
over texts, for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.types import Device

from linnet.base.options import check_size
from linnet.data.encoders import empty
from linnet.data.pieces import Reading, Window
from linnet.recurrent.dropout import Dropout


@dataclass(frozen=True)
class ContextShape:
    """What a model must know of an encoder.

    size       the size of its vectors
    layers     the layers of which a model learns a mix (1: the last layer only)
    settings   those of an encoder that is tuned, which is then a part of the model
    """

    size: int
    layers: int = 1
    settings: dict[str, Any] | None = None


class Context(NamedTuple):
    """The vectors of an encoder for a batch of texts."""

    words: Tensor  # [T, B, layers, size]; zeros at padding
    pooled: Tensor  # [B, size]: one vector for each text


class ContextVectors(nn.Module):
    """The vectors of words that a model reads: [T, B, layers, size] -> [T, B, size].

    dropout   on the vectors of words
    """

    def __init__(
        self,
        shape: ContextShape,
        dropout: float = 0.0,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        check_size("size", shape.size)
        check_size("layers", shape.layers)
        self.output_size, self.layers = shape.size, shape.layers
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.mix = LayerMix(shape.layers, **where) if shape.layers > 1 else None
        self.dropout = Dropout(dropout)
        self.encoder = None if shape.settings is None else empty(shape.settings).to(**where)

    def forward(self, context: Context | None) -> Tensor:
        shape = None if context is None else tuple(context.words.shape[2:])
        if context is None or shape != (self.layers, self.output_size):
            raise ValueError(
                f"this model reads the vectors of an encoder; expected a Context with words of [time, batch, "
                f"{self.layers}, {self.output_size}], got {shape and ['time', 'batch', *shape]}"
            )
        words = context.words[..., 0, :] if self.mix is None else self.mix(context.words)
        return self.dropout(words)


class LayerMix(nn.Module):
    """A weighted mean of layers, times a number: [..., layers, size] -> [..., size]; a mean at the start."""

    def __init__(self, layers: int, device: Device = None, dtype: torch.dtype | None = None):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(layers, device=device, dtype=dtype))
        self.gamma = nn.Parameter(torch.ones((), device=device, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("...ld,l->...d", x, self.gamma * self.weight.softmax(0))


WITHOUT_EXPORT = (
    "it reads the vectors of an encoder of transformers, which is not exported; export it with --to hub, or "
    "train it without --context"
)


def reads_context(model: nn.Module) -> bool:
    return any(isinstance(module, ContextVectors) for module in model.modules())


# ------------------------------------------------------------------------------- running an encoder


class How(NamedTuple):
    """How the vectors of words are taken from an encoder.

    every_layer   those of all layers and of the embeddings, instead of the last layer only
    mean          the mean over the pieces of a word, instead of its first piece
    pooler        the vector of a text is that of the encoder's pooler, instead of its first piece
    """

    every_layer: bool = False
    mean: bool = False
    pooler: bool = True


def encode(encoder: nn.Module, readings: Sequence[Reading], how: How) -> list[Tensor]:
    """Return the vectors of each text, [1 + words, layers, size]: first that of the text, then its words.

    A word without pieces has zeros. The vector of a text with several windows is the mean of theirs.
    """
    windows = [window for reading in readings for window in reading.windows]
    hidden, pooled = run_windows(encoder, windows, how)
    starts = accumulate((len(reading.windows) for reading in readings), initial=0)
    return [
        torch.cat(
            [
                of_text(pooled[start : start + len(reading.windows)], hidden),
                of_words(hidden, reading, start, how),
            ]
        )
        for reading, start in zip(readings, starts, strict=False)
    ]


def run_windows(encoder: nn.Module, windows: Sequence[Window], how: How) -> tuple[Tensor, Tensor]:
    """Return the vectors of pieces, [windows, pieces, layers, size], and of windows, [windows, size]."""
    device = next(encoder.parameters()).device
    longest = max(len(window.pieces) for window in windows)
    rows = torch.zeros(3, len(windows), longest, dtype=torch.int64)
    for number, window in enumerate(windows):
        count = len(window.pieces)
        rows[:, number, :count] = torch.tensor([window.pieces, window.kinds, [1] * count])
    pieces, kinds, real = rows.to(device)
    given = {"input_ids": pieces, "attention_mask": real}
    if reads_kinds(encoder):
        given["token_type_ids"] = kinds
    found = encoder(**given, output_hidden_states=how.every_layer, return_dict=True)
    layers = found.hidden_states if how.every_layer else (found.last_hidden_state,)
    pooled = found.pooler_output if how.pooler else found.last_hidden_state[:, 0]
    return torch.stack(tuple(layers), 2), pooled


def reads_kinds(encoder: nn.Module) -> bool:
    """Whether it tells the texts of a pair apart by a vector; RoBERTa has one kind, DistilBERT none."""
    return getattr(encoder.config, "type_vocab_size", 0) > 1


def of_text(pooled: Tensor, hidden: Tensor) -> Tensor:
    return pooled.mean(0).expand(1, hidden.shape[2], -1)


def of_words(hidden: Tensor, reading: Reading, start: int, how: How) -> Tensor:
    """Return the vectors of the words of a text whose first window is `start`."""
    known = [(number, span) for number, span in enumerate(reading.words) if span is not None]
    ends = [span.end if how.mean else span.first + 1 for _, span in known]
    counts = torch.tensor(
        [end - span.first for (_, span), end in zip(known, ends, strict=True)], dtype=torch.int64
    )
    windows = torch.tensor([start + span.window for _, span in known], dtype=torch.int64)
    firsts = torch.tensor([span.first for _, span in known], dtype=torch.int64)
    rows = torch.tensor([number for number, _ in known], dtype=torch.int64)
    # One line for each piece: its word, its window and its place there.
    lines = torch.arange(len(known)).repeat_interleave(counts)
    within = torch.arange(len(lines)) - (counts.cumsum(0) - counts)[lines]
    places = [each.to(hidden.device) for each in (rows[lines], windows[lines], firsts[lines] + within)]
    vectors = hidden[places[1], places[2]] / counts[lines].to(hidden)[:, None, None]
    return hidden.new_zeros(len(reading.words), *hidden.shape[2:]).index_add(0, places[0], vectors)
