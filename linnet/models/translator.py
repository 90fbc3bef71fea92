"""Translation models: a source sentence is encoded, and a target sentence is generated word by word.

`RecurrentTranslator` is the deep model of Zhang and Sennrich (2019, Table 3), after GNMT (Wu et al. 2016),
with any unit. `TransformerTranslator` is the Transformer in the form of OpenNMT-py; with feed_forward="unit"
its feed-forward layers are recurrent, as in Lei et al. (2018, Table 3).

    model = make_translator(8000, 8000, TranslatorConfig(form="transformer", feed_forward="unit", unit="sru"))
    logits = model(source, lengths, target, target_lengths)        # training: [T, B, words]
    found = model.translate(source, lengths, beam=4)               # found.tokens[:, 0] are the best

Sentences are [T, B] with their lengths. Token 0 is padding and, as an input of the decoder, the start of a
sentence; token 2 ends each sentence, on both sides. Padding never changes a result, unless padding="read".
"""

from __future__ import annotations

import torch
from torch.types import Device

from linnet.layers.context import ContextShape
from linnet.models.recurrent_translator import RecurrentTranslator
from linnet.models.transformer_translator import TransformerTranslator
from linnet.models.translator_base import Decoded, Translator, TranslatorConfig

__all__ = [
    "Decoded",
    "RecurrentTranslator",
    "TransformerTranslator",
    "Translator",
    "TranslatorConfig",
    "make_translator",
]


def make_translator(
    source_words: int,
    target_words: int,
    config: TranslatorConfig,
    *,
    context: ContextShape | None = None,
    device: Device = None,
    dtype: torch.dtype | None = None,
) -> Translator:
    kind = RecurrentTranslator if config.form == "recurrent" else TransformerTranslator
    return kind(source_words, target_words, config, context=context, device=device, dtype=dtype)
