"""A vector for each word from its characters: ids [T, B, C] -> [T, B, F]. Character 0 is padding.

`CharacterEmbedding` checks and embeds characters; `CharacterMax` is the feature of the LRN authors'
classifiers.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.types import Device

from linnet.base.options import check_rate, check_size
from linnet.layers.embedding import check_range


class CharacterEmbedding(nn.Module):
    """Ids [..., C] -> vectors [..., C, size], 0 at padding; dropout while training.

    fixed   a dropout mask, already divided by the share that is kept, to use instead of drawing one
    """

    fixed: Tensor | None

    def __init__(
        self,
        characters: int,
        size: int,
        dropout: float = 0.0,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        check_size("characters", characters)
        check_size("size", size)
        check_rate("dropout", dropout)
        self.characters, self.size, self.dropout, self.fixed = characters, size, dropout, None
        self.weight = nn.Parameter(torch.empty(characters, size, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Xavier-uniform, as in the LRN authors' classifiers."""
        nn.init.xavier_uniform_(self.weight)

    def forward(self, characters: Tensor) -> Tensor:
        # A row of zeros costs less than a mask over all characters of a batch.
        vectors = F.embedding(characters, F.pad(self.weight[1:], (0, 0, 1, 0)))
        if not self.training:
            return vectors
        return vectors * self.fixed if self.fixed is not None else F.dropout(vectors, self.dropout)

    def extra_repr(self) -> str:
        return f"{self.characters}, {self.size}, dropout={self.dropout}"


class CharacterMax(nn.Module):
    """The largest value of each channel over the characters of a word, and a linear layer.

    slots   the characters that the authors' code reads of each word: a shorter word is padded with zeros,
            which enter the maximum; only a word that fills all slots may have negative values

    A batch may have fewer slots: the result is that of a batch that is padded to `slots`.
    """

    def __init__(
        self,
        characters: int,
        size: int,
        dropout: float = 0.0,
        slots: int = 25,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        check_size("slots", slots)
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.slots, self.output_size = slots, size
        self.embedding = CharacterEmbedding(characters, size, dropout, **where)
        self.linear = nn.Linear(size, size, **where)

    def forward(self, characters: Tensor) -> Tensor:
        check_characters(characters, self.embedding.characters, self.slots)
        return self.linear(self.largest(characters))

    def largest(self, characters: Tensor) -> Tensor:
        """[T, B, C] -> [T, B, size]."""
        words = characters.flatten(0, 1)
        real = words != 0
        counts = real.sum(1)
        # Most slots of most words are padding: embedding the real characters only is several times as fast.
        values = self.embedding(words[real])
        least = torch.where(counts < self.slots, 0.0, -torch.inf).to(values.dtype)
        word = torch.repeat_interleave(counts)
        start = least[:, None].expand(-1, values.shape[1])
        largest = start.scatter_reduce(0, word[:, None].expand_as(values), values, "amax")
        return largest.unflatten(0, characters.shape[:2])


def check_characters(characters: Tensor | None, size: int, slots: int) -> None:
    """Ids [time, batch, character] of an alphabet of `size`."""
    if not isinstance(characters, Tensor) or characters.dtype != torch.int64:
        kind = characters.dtype if isinstance(characters, Tensor) else type(characters).__name__
        raise TypeError(
            "this model reads characters, a tensor of torch.int64 [time, batch, character] with 0 at "
            f"padding; got {kind}"
        )
    if characters.dim() != 3 or not characters.numel() or characters.shape[-1] > slots:
        raise ValueError(
            f"characters must be [time, batch, character] with 1 to {slots} characters; "
            f"got shape {tuple(characters.shape)}"
        )
    # On other devices than the CPU, reading the values would wait for the device.
    if characters.device.type == "cpu":
        check_range("characters", characters, size)
