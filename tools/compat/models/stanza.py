"""stanza: its tokenizer with the default sizes and random weights, over 8 paragraphs of 300 characters."""

from __future__ import annotations

from collections.abc import Callable

import torch
from stanza.models.tokenization.model import Tokenizer
from torch import Tensor

from tools.compat.models.shared import Convert

OPTIONS = {
    **{"feat_dim": 5, "rnn_layers": 1, "conv_res": None, "use_mwt": True, "hierarchical": True},
    **{"hier_invtemp": 0.5, "tok_noise": 0.02},
}


def work(convert: Convert) -> Callable[[], Tensor]:
    torch.manual_seed(0)
    model = Tokenizer(OPTIONS, nchars=120, emb_dim=32, hidden_dim=64, dropout=0.33, feat_dropout=0.05).eval()
    convert(model)
    characters, features = torch.randint(1, 120, (8, 300)), torch.rand(8, 300, 5)
    lengths = [300 - 20 * number for number in range(8)]
    return lambda: model(characters, features, lengths)
