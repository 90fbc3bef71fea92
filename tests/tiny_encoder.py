"""A tiny BERT with random weights and a tokenizer of word pieces, as a folder that transformers can load."""

from __future__ import annotations

from pathlib import Path

import torch

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LIMIT = 12  # pieces


def write_encoder(folder: Path, seed: int = 0, pooler: bool = True) -> Path:
    """Its pieces are single letters and digits, so `bird` has four of them; other characters are unknown."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from tokenizers.processors import TemplateProcessing
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,!?|"
    vocabulary = {
        piece: number for number, piece in enumerate((*SPECIAL, *letters, *(f"##{each}" for each in letters)))
    }
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = BertNormalizer(), BertPreTokenizer()
    ends = [("[CLS]", 2), ("[SEP]", 3)]
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    named = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), SPECIAL, strict=False))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=LIMIT, **named)
    fast.save_pretrained(folder)
    settings = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=LIMIT,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        BertModel(settings, add_pooling_layer=pooler).save_pretrained(folder)
    return folder
