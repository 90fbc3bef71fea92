"""xlstm, of the authors of sLSTM: its layer by the backend without CUDA, its weights, and training."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from xlstm import sLSTMLayer, sLSTMLayerConfig

import linnet
from tools.compat.contestants import RNN
from tools.compat.examples import BlockClassifier, check_plainly, drawn, work_plainly

TYPES = dict.fromkeys(("dtype", "dtype_b", "dtype_r", "dtype_w", "dtype_g", "dtype_s", "dtype_a"), "float32")


class Layer(nn.Module):
    """Their layer with the layout of Linnet's: x [T, B, size]."""

    def __init__(self, size: int, heads: int = 4, conv: int = 4):
        super().__init__()
        sizes: dict[str, Any] = {"embedding_dim": size, "num_heads": heads, "conv1d_kernel_size": conv}
        self.layer = sLSTMLayer(sLSTMLayerConfig(**sizes, **TYPES, backend="vanilla"))

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        return self.layer(x.transpose(0, 1)).transpose(0, 1), None


CONTESTANTS: dict[str, RNN] = {"xlstm.sLSTMLayer": Layer, "SLSTMBlock": linnet.SLSTMBlock}


def check(rnn: RNN, folder: Path) -> None:
    check_plainly(partial(BlockClassifier, rnn), folder)
    x = torch.randn(9, 3, 12)
    for sizes in ((12, 4, 4), (12, 3, 0), (12, 1, 2)):
        theirs, ours = drawn(Layer(*sizes)), rnn(*sizes)
        if isinstance(ours, linnet.SLSTMBlock):
            linnet.load_foreign(ours, theirs.layer.state_dict(), source="xlstm")
            torch.testing.assert_close(ours(x)[0], theirs(x)[0])


def work(rnn: RNN) -> Callable[[], object]:
    return work_plainly(partial(BlockClassifier, rnn))
