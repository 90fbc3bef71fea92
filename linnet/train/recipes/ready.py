"""The trained models of the package: `python -m tools.ready` trains them and writes linnet/ready."""

from __future__ import annotations

from linnet.train.recipes.book import Settings, put

ADAM: Settings = {"optimiser": "adam", "clip": 1.0, "fused": True, "threads": 1, "device": "cpu"}
CAPITALS_AND_MARKS: Settings = {
    **{"set": "kjv", "unit": "lrn", "bidirectional": True, "embedding_size": 100, "hidden_size": 128},
    **{"character_size": 50, "character_hidden": 50, "rare_dropout": 2.0, "batch": 16},
    **{"lr": 3e-3, "epsilon": 1e-8, "schedule": "linear", "updates": 3000, "epochs": 4},
}

INTO_MODERN: Settings = {
    **{"set": "bible", "direction": "kjv-web", "form": "recurrent", "unit": "lrn"},
    **{"hidden_size": 128, "pieces": 4000, "tokens": 512, "dropout": 0.1, "best_by": "bleu"},
    **{"lr": 4e-3, "schedule": "linear", "warmup": 0, "epochs": 4, "ema": 0.99, "ema_warmup": True},
}

LETTERS: Settings = {
    **{"corpus": "kjv", "level": "char", "unit": "ran", "embedding_size": 64, "hidden_size": 256},
    **{"num_layers": 2, "layer_dropout": 0.05, "output_dropout": 0.05},
    **{"optimiser": "adamw", "lr": 6e-3, "schedule": "linear", "updates": 4000},
    **{"batch": 16, "length": 64, "eval_batch": 20, "epochs": 2},
}


def add_ready() -> None:
    put("tag", "ready-punctuate", "capitals and punctuation, restored", ADAM, CAPITALS_AND_MARKS)
    put("translate", "ready-translate", "the King James Bible into modern English", ADAM, INTO_MODERN)
    put("lm", "ready-kjv", "characters of the King James Bible", ADAM, LETTERS)
