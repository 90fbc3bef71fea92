"""Language models of the papers."""

from __future__ import annotations

from collections.abc import Iterator

from linnet.train.recipes.book import RECIPES, Settings, add, everywhere

# Windows of 35 steps of 20 columns, the loss summed over steps, evaluation with the tail dropped. The authors
# of RAN and SCRN use TensorFlow.
PTB_TUTORIAL: Settings = {
    **{"corpus": "ptb", "batch": 20, "length": 35, "tail": "drop", "eval_batch": 20, "eval_tail": "drop"},
    **{"optimiser": "sgd", "loss_over": "sequences", "dropout_mode": "naive", "clip_exact": True},
}

# ------------------------------------------------------------------------------------------- RAN

RAN_SIZES = {
    "medium": {
        **{"hidden_size": 650, "embedding_size": 650, "init_scale": 0.05, "clip": 5.0, **everywhere(0.5)},
        **{"decay": 0.8, "decay_after": 6, "epochs": 39},
    },
    "large": {
        **{"hidden_size": 1500, "embedding_size": 1500, "init_scale": 0.04, "clip": 10.0, **everywhere(0.65)},
        **{"decay": 1 / 1.15, "decay_after": 14, "epochs": 55},
    },
}
RAN_RATES = {("tanh", "medium"): 1.0, ("id", "medium"): 0.8, ("tanh", "large"): 0.8, ("id", "large"): 0.5}
RAN_TEST = {"select": "last", "test_batch": 1, "test_tail": "keep"}


def add_ran() -> None:
    for (g, size), lr in RAN_RATES.items():
        unit = {"unit": "ran", "unit_options": {"activation": "tanh" if g == "tanh" else "identity"}}
        add(
            f"ran-ptb-{g}-{size}",
            f"RAN, Table 1: {size}, output {'tanh' if g == 'tanh' else 'identity'}, Penn Treebank",
            *(PTB_TUTORIAL, RAN_SIZES[size], RAN_TEST, unit),
            **{"init": "weights", "schedule": "after", "lr": lr, "num_layers": 2},
        )
    add(
        "ran-text8",
        "RAN, Table 3: three layers, text8 by characters",
        {
            "corpus": "text8",
            "batch": 128,
            "length": 100,
            "tail": "drop",
            "eval_batch": 128,
            "eval_tail": "drop",
        },
        {"unit": "ran", "unit_options": {"activation": "tanh"}, "hidden_sizes": [1024, 1024, 2048]},
        {"embedding_size": 128, "embedding_dropout": 0.1, "input_dropout": 0.4, "layer_dropout": 0.4},
        {"init": "weights", "init_scale": 0.04, "lr": 0.2, "weight_decay": 1e-7},
        {"clip": 10.0, "clip_exact": True},
        {"schedule": "after", "decay": 1 / 1.03, "decay_after": 5, "epochs": 500, "loss_over": "sequences"},
        {"test_batch": 1, "test_tail": "keep"},
    )
    add(
        "ran-bwb",
        "RAN, Table 2: one projected layer, billion words; adaptive softmax where the authors sample",
        {"corpus": "bwb", "batch": 512, "length": 20, "eval_batch": 128, "loss_over": "sequences"},
        {"unit": "ran", "unit_options": {"activation": "identity", "proj_size": 512}, "embedding_size": 512},
        {"hidden_size": 2048, "num_layers": 1, "softmax": "adaptive", "cutoffs": [2000, 8000]},
        {"input_dropout": 0.1, "output_dropout": 0.1, "optimiser": "adagrad", "lr": 0.2, "accumulator": 1.0},
        {"clip": 10.0, "clip_exact": True, "ema": 0.999, "epochs": 10},
    )


# ------------------------------------------------------------------------------------------- LRN

# The windows, the regularisers and the optimiser of the mixture of softmaxes.
MIXTURE: Settings = {
    **{"order": "appearance", "length": 70, "varied": True, "tail": "trim"},
    **{"eval_batch": 10, "eval_tail": "trim", "test_batch": 1},
    **{"unit": "lrn", "softmax": "mixture", "experts": 15, "tied": True, "dropout_mode": "sequence"},
    **{"embedding_dropout": 0.1, "output_dropout": 0.4, "latent_dropout": 0.29, "ar": 2.0, "tar": 1.0},
    **{"optimiser": "nt-asgd", "weight_decay": 1.2e-6, "clip": 0.25, "scale_by_length": True, "epochs": 1000},
}
LRN_PTB: Settings = {
    **{"corpus": "ptb", "batch": 12, "hidden_sizes": [960, 960, 620], "embedding_size": 280, "lr": 10.0},
    **{"input_dropout": 0.4, "layer_dropout": 0.225, "seed": 28},
}
LRN_WT2: Settings = {
    **{"corpus": "wikitext2", "batch": 15, "hidden_sizes": [1150, 1150, 650], "embedding_size": 300},
    **{"lr": 15.0, "input_dropout": 0.55, "layer_dropout": 0.2, "delta": 20, "seed": 1882},
}
FINETUNE: Settings = {"optimiser": "asgd", "patience": 5}


def add_lrn() -> None:
    tables = {"ptb": (LRN_PTB, "Penn Treebank", 15.0), "wt2": (LRN_WT2, "WikiText-2", 20.0)}
    for name, (settings, text, lr) in tables.items():
        add(f"lrn-{name}", f"LRN, Table 5: mixture of softmaxes, {text}", MIXTURE, settings)
        about = f"LRN, Table 5: finetuning of lrn-{name}; give its run to --start-from"
        add(f"lrn-{name}-finetune", about, MIXTURE, settings, FINETUNE, lr=lr)


# ------------------------------------------------------------------------------------------- NRU

NRU_UNITS: dict[str, Settings] = {
    "": {
        **{"unit": "nru", "hidden_size": 1000, "clip": 1.0},
        "unit_options": {"memory_size": 576, "num_heads": 4, "head_activation": "relu"},
    },
    "-lstm": {
        **{"unit": "lstm", "hidden_size": 630, "clip": 5.0},
        "unit_options": {"peepholes": True, "init": "orthogonal", "second_bias": False},
    },
    "-lstm-chrono": {
        **{"unit": "lstm", "hidden_size": 630, "clip": 5.0},
        "unit_options": {"peepholes": True, "init": "orthogonal", "second_bias": False, "chrono": 50},
    },
    "-gru": {
        **{"unit": "gru", "hidden_size": 750, "clip": 5.0},
        "unit_options": {"form": "before", "init": "orthogonal"},
    },
    "-janet": {"unit": "janet", "hidden_size": 930, "clip": 5.0, "unit_options": {"chrono": 50}},
}


def add_nru() -> None:
    for suffix, unit in NRU_UNITS.items():
        add(
            f"nru-ptb-char{suffix}",
            f"NRU, Table 2: {unit['unit']}{', chrono' * ('chrono' in suffix)}, Penn Treebank by characters",
            {"corpus": "ptb-char", "batch": 128, "length": 150, "tail": "drop", "eval_batch": 128},
            {"eval_tail": "drop", "embedding_size": 200, "num_layers": 1, "init": "xavier"},
            {"optimiser": "adam", "lr": 1e-3, "epochs": 20},
            unit,
        )


# ------------------------------------------------------------------------------------------- SRU

# layers, size, projection, window, batch, dropout, parameters
SRU_SIZES = {
    "6": (6, 1536, 0, 100, 128, 0.2, "37M"),
    "10": (10, 1152, 0, 100, 128, 0.2, "37M"),
    "6-proj": (6, 3264, 512, 100, 128, 0.2, "37M"),
    "8-proj": (8, 3056, 512, 100, 128, 0.3, "47M"),
    "12-proj": (12, 2048, 512, 256, 64, 0.3, "49M"),
}


def add_sru() -> None:
    for name, (layers, size, rank, length, batch, dropout, parameters) in SRU_SIZES.items():
        projected = f", projected to {rank}" if rank else ""
        add(
            f"sru-enwik8-{name}",
            f"SRU, Table 4: {layers} layers of {size}{projected}, {parameters}, enwik8",
            {"corpus": "enwik8", "batch": batch, "length": length, "eval_batch": batch, "test_batch": 1},
            {"unit": "sru", "num_layers": layers, "hidden_size": size, "init": "rows"},
            {"unit_options": {"highway_bias": -3.0, "rank": rank, "cell_dropout": dropout}},
            {"embedding_size": 256 if name == "12-proj" else 205},
            {"input_dropout": dropout, "output_dropout": dropout},
            {"optimiser": "adam", "lr": 3.0, "weight_decay": 1e-7, "clip": 0.3, "epochs": 100},
            {"schedule": "noam", "width": size, "warmup": 32_000 if rank else 8_000},
        )


# ------------------------------------------------------------------------------------------ SCRN

SCRN_SIZES = {"small": (240, 40), "medium": (750, 120)}
# dropout on Penn Treebank and on WikiText-2, and how the rate falls
SCRN_TUNED: dict[tuple[str, str], tuple[float, float, Settings]] = {
    ("small", "nd"): (0.2, 0.15, {"lr": 0.8, "schedule": "plateau", "decay": 0.5, "epochs": 60}),
    ("medium", "nd"): (0.55, 0.45, {"lr": 0.8, "schedule": "plateau", "decay": 0.65, "epochs": 80}),
    ("small", "vd"): (
        *(0.15, 0.1),
        {"lr": 0.8, "schedule": "after", "decay": 0.87, "decay_after": 10, "epochs": 50},
    ),
    ("medium", "vd"): (
        *(0.4, 0.3),
        {"lr": 0.6, "schedule": "after", "decay": 0.9, "decay_after": 25, "epochs": 70},
    ),
}
LANGUAGES = {"fr": "French", "es": "Spanish", "de": "German", "cs": "Czech", "ru": "Russian"}
SCRN: Settings = {"unit": "scrn", "num_layers": 2, "init": "uniform", "init_scale": 0.3, "clip": 5.0}
BASELINES = {(40, 10): 0.3, (90, 10): 0.3, (100, 40): 0.3, (300, 40): 0.2}


def scrn_settings(size: str, kind: str, rate: float) -> Settings:
    hidden, context = SCRN_SIZES[size]
    sizes = {"hidden_size": hidden, "embedding_size": hidden}
    unit = {"unit_options": {"context_size": context, "alpha": 0.9}}
    masks = (
        {"dropout_mode": "batch", "state_dropout": rate, "state_dropout_on": "carried"}
        if kind == "vd"
        else {}
    )
    return {**PTB_TUTORIAL, **SCRN, **sizes, **unit, **everywhere(rate), **masks, **SCRN_TUNED[size, kind][2]}


def scrn_variants() -> Iterator[tuple[str, str, Settings]]:
    for (size, kind), (penn, wiki, _) in SCRN_TUNED.items():
        for tied in (False, True):
            name, wt = f"scrn-{size}-{kind}{'-wt' if tied else ''}", {"tied": tied}
            yield name, "Penn Treebank", {**scrn_settings(size, kind, penn), **wt}
            # The medium variational model has 5 epochs less on WikiText-2.
            fewer = {"epochs": 65} if (size, kind) == ("medium", "vd") else {}
            settings = {**scrn_settings(size, kind, wiki), **wt, **fewer, "corpus": "wikitext2"}
            yield f"{name}-wt2", "WikiText-2", settings


def add_scrn() -> None:
    for name, text, settings in scrn_variants():
        add(name, f"SCRN, Table 4: {text}", settings)
        if not name.endswith("-wt2"):
            add(f"{name}-ptb", f"the same as {name}", settings)
    wiki = RECIPES["scrn-medium-nd-wt-wt2"].settings
    for code, language in LANGUAGES.items():
        add(f"scrn-medium-nd-wt-{code}", f"SCRN, Table 6: {language}", wiki, corpus=f"wmt13-{code}")
    for (hidden, context), scale in BASELINES.items():
        add(
            f"scrn-baseline-{hidden}-{context}",
            f"SCRN, Table 2: one layer, h {hidden} and s {context}, Penn Treebank",
            *(PTB_TUTORIAL, SCRN, {"schedule": "plateau", "decay": 0.5, "lr": 0.8, "epochs": 60}),
            **{"unit_options": {"context_size": context, "alpha": 0.95}, "init_scale": scale},
            **{"hidden_size": hidden, "embedding_size": 0, "num_layers": 1},
        )
