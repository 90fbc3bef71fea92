"""Selective copying and state tracking, as in the papers of minGRU and minLSTM and of xLSTM.

The models are stacks of the unit with the sizes, norms and residual connections of the papers' blocks but no
embedding: the first layer reads classes, so its input and output differ in size and it has no residual
connection. In the code of the minGRU authors, weight decay leaves out the matrix of the gates.
"""

from __future__ import annotations

from linnet.train.recipes.book import Settings, put

MINRNN_RUN: Settings = {"optimiser": "adamw", "lr": 3e-4, "weight_decay": 0.05, "log_every": 100}
MINRNN_RUN |= {"evaluate_every": 1000}
# The authors' minLSTM does not normalise its gates, unlike that of their paper.
MINRNNS: dict[str, Settings] = {"mingru": {}, "minlstm": {"normalised": False, "forget_bias": 3.0}}
BLOCKS: Settings = {"prenorm": "rms", "residual": True, "learned_start": True}
SELECTIVE: Settings = {
    **{"span": 4096, "symbols": 14, "recalled": 16, "batch": 64, "eval_examples": 12_800},
    **{"hidden_size": 384, "num_layers": 3, "clip": 1.0, "steps": 400_000},
}
LENGTHS: Settings = {
    **{"shortest": 1, "longest": 40, "test_longest": 256, "batch": 128},
    **{"eval_batch": 256, "eval_examples": 51_200, "hidden_size": 256, "num_layers": 2, "clip": 0.0},
}
# The name of the task and the updates.
TRACKED = {"parity": 500_000, "pairs": 100_000, "cycle": 500_000}


def add_minrnns() -> None:
    for unit, options in MINRNNS.items():
        words = f"{unit}, selective copying: 16 of 14 symbols among 4,096 steps"
        its = {"unit": unit, "unit_options": {**BLOCKS, **options, "proj_size": 64, "dropout": 0.1}}
        put("memory.selective", f"{unit}-selective", words, MINRNN_RUN, SELECTIVE, its)
        its = {"unit": unit, "unit_options": {**BLOCKS, **options, "proj_size": 256}}
        for name, steps in TRACKED.items():
            words = f"{unit}, Chomsky hierarchy: {name}"
            put(f"memory.{name}", f"{unit}-{name}", words, MINRNN_RUN, LENGTHS, its, {"steps": steps})


def add_xlstm_parity() -> None:
    """The lengths of the authors' code are 3 to 40 and count the answer, which follows the bits."""
    model: Settings = {"unit": "slstm", "hidden_size": 64, "num_layers": 2}
    model |= {"unit_options": {"heads": 1, "prenorm": "layer", "group_norm": True, "residual": True}}
    lengths: Settings = {"shortest": 2, "longest": 39, "test_longest": 255, "batch": 256}
    run: Settings = {"optimiser": "adamw", "lr": 1e-3, "weight_decay": 0.1, "schedule": "cosine"}
    run |= {"warmup": 2000, "steps": 20_000, "evaluate_every": 200, "log_every": 100}
    run |= {"eval_batch": 64, "eval_examples": 8192}
    put("memory.parity", "slstm-parity", "xLSTM[0:1], parity: two layers of sLSTM", model, lengths, run)
