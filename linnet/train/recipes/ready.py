"""The trained models of the package: `python -m tools.ready` trains them and writes linnet/ready."""

from __future__ import annotations

from linnet.train.recipes.book import Settings, put

ADAM: Settings = {"optimiser": "adam", "clip": 1.0, "fused": True, "threads": 1, "device": "cpu"}
CAPITALS_AND_MARKS: Settings = {
    **{"set": "kjv", "unit": "lrn", "bidirectional": True, "embedding_size": 100, "hidden_size": 128},
    **{"character_size": 50, "character_hidden": 50, "rare_dropout": 2.0, "batch": 16},
    **{"lr": 3e-3, "epsilon": 1e-8, "schedule": "linear", "updates": 3000, "epochs": 4},
}


def add_ready() -> None:
    put("tag", "ready-punctuate", "capitals and punctuation, restored", ADAM, CAPITALS_AND_MARKS)
