"""The papers' recipes by name, each a run that can be changed field by field.

Where a paper does not say, its authors' code decides. The text of a recipe says where it differs from both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from linnet.base.suggest import did_you_mean

Settings = dict[str, Any]


class Recipe(NamedTuple):
    about: str
    settings: Settings
    task: str = "lm"


RECIPES: dict[str, Recipe] = {}


def recipe(name: str, task: str | None = None) -> Recipe:
    """Return a recipe by its name; if `task` is given, it must be a recipe of that task."""
    if name not in RECIPES:
        raise ValueError(
            f"no recipe {name!r}{did_you_mean(name, RECIPES) or ';'} `linnet list recipes` has them all"
        )
    found = RECIPES[name]
    if task is not None and found.task != task:
        raise ValueError(f"{name} is a recipe of the task {found.task}, and this is {task}")
    return found


def add(name: str, about: str, *parts: Settings, **more: Any) -> None:
    """Add a recipe of a language model; later parts override earlier ones."""
    put("lm", name, about, *parts, more)


# The defaults of `linnet train` are not those of the papers, so every recipe states these three.
PLAIN_SGD: Settings = {"optimiser": "sgd", "lr": 1.0, "clip": 0.0}


def put(task: str, name: str, about: str, *parts: Settings) -> None:
    settings = {key: value for part in (PLAIN_SGD, *parts) for key, value in part.items()}
    RECIPES[name] = Recipe(about, settings, task)


def everywhere(rate: float) -> Settings:
    """Dropout on the words, between layers and on the last output."""
    return {"input_dropout": rate, "layer_dropout": rate, "output_dropout": rate}


# Windows of 35 steps of 20 columns, the loss summed over steps, evaluation with the tail dropped.
PTB_TUTORIAL: Settings = {
    **{"corpus": "ptb", "batch": 20, "length": 35, "tail": "drop", "eval_batch": 20, "eval_tail": "drop"},
    **{"optimiser": "sgd", "loss_over": "sequences", "dropout_mode": "naive"},
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
        {"init": "weights", "init_scale": 0.04, "lr": 0.2, "clip": 10.0, "weight_decay": 1e-7},
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
        {"clip": 10.0, "ema": 0.999, "epochs": 10},
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


# The units as the LRN authors' tagger has them.
NER_UNITS: dict[str, Settings] = {
    "lstm": {"init": "xavier"},
    "gru": {"form": "before", "init": "xavier"},
    "atr": {"activation": "identity"},
    "sru": {"full_bias": True, "rescale": False, "skip": "matrix"},
    "lrn": {},
}


def add_lrn_ner() -> None:
    for unit, options in NER_UNITS.items():
        put(
            "tag",
            f"lrn-ner-{unit}",
            f"LRN, Table 6: {unit.upper()}, CoNLL-2003; give GloVe to --vectors",
            {"set": "conll2003", "batch": 32, "order": "chunks", "unit": unit, "unit_options": options},
            {"optimiser": "adam", "lr": 1e-3, "epsilon": 1e-7, "epochs": 30, "select": "last"},
            {"released_crf": True},
        )


# ------------------------------------------------------------------------------------------- NRU

NRU_UNITS: dict[str, Settings] = {
    "": {
        **{"unit": "nru", "hidden_size": 1000, "clip": 1.0},
        "unit_options": {"memory_size": 576, "num_heads": 4, "head_activation": "relu"},
    },
    "-lstm": {
        **{"unit": "lstm", "hidden_size": 630, "clip": 5.0},
        "unit_options": {"peepholes": True, "init": "orthogonal"},
    },
    "-lstm-chrono": {
        **{"unit": "lstm", "hidden_size": 630, "clip": 5.0},
        "unit_options": {"peepholes": True, "init": "orthogonal", "chrono": 50},
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


# --------------------------------------------------------------------------- NRU, memory

PEEPHOLES: Settings = {"peepholes": True, "init": "orthogonal"}
NORMED: Settings = {"activation": "relu", "layer_norm": True}
# name: the unit, its hidden size for 23.5k and for 165k parameters, its options. The sizes are the authors'.
# Neither the paper nor the code gives those of GORU and of EURNN at 23.5k: they come closest to the budget.
NRU_RIVALS: dict[str, tuple[str, int, int, Settings]] = {
    "rnn-orth": ("rnn", 143, 400, {**NORMED, "init": "orthogonal"}),
    "rnn-id": ("rnn", 143, 400, {**NORMED, "init": "identity"}),
    "lstm": ("lstm", 70, 200, PEEPHOLES),
    "lstm-chrono": ("lstm", 70, 200, PEEPHOLES),
    "gru": ("gru", 82, 232, {"form": "before", "init": "orthogonal"}),
    "janet": ("janet", 101, 283, {}),
    "statistical": ("statisticalru", 60, 150, {}),
    "eurnn": ("eurnn", 940, 1024, {}),
    "goru": ("goru", 98, 282, {}),
}
STATISTICS = ({"statistics_size": 55, "summary_size": 16}, {"statistics_size": 155, "summary_size": 50})
MEMORY_RUN: Settings = {"optimiser": "adam", "lr": 1e-3, "seed": 5}
ENDLESS_RUN: Settings = {
    "batch": 10,
    "data_seed": 5,
    "steps": 200_000,
    "evaluate_every": 1000,
    "log_every": 100,
}
# name: the task, its words, its settings, the steps of a sequence, and how NRU is trained
NRU_MEMORY: dict[str, tuple[str, str, Settings, int, Settings]] = {
    "copy-100": (
        *("memory.copy", "Figure 1: copying, T = 100", {"span": 100}, 120),
        {"clip": 0.5, "amsgrad": True},
    ),
    "copy-200": (
        *("memory.copy", "Figure 1: copying, T = 200", {"span": 200}, 220),
        {"clip": 0.5, "amsgrad": True},
    ),
    "variable-100": ("memory.variable", "Figure 2: variable copying, T = 100", {"span": 100}, 120, {}),
    "variable-200": (
        *("memory.variable", "Figure 2: variable copying, T = 200", {"span": 200}, 220),
        {"amsgrad": True},
    ),
    "denoise": ("memory.denoise", "Figure 4: denoising, T = 100", {"span": 100}, 111, {}),
}
IMAGES: Settings = {
    **{"images": "mnist", "batch": 100, "data_seed": 50, "cut_seed": 50, "epochs": 100},
    **MEMORY_RUN,
}


def rivals(large: bool, length: int) -> Iterator[tuple[str, Settings]]:
    """Each with its size and the clipping of the paper: none where the transition keeps the norm."""
    for name, (unit, small_size, large_size, options) in NRU_RIVALS.items():
        more: Settings = {"chrono": length} if name in ("lstm-chrono", "janet") else {}
        more = STATISTICS[large] if name == "statistical" else more
        size = large_size if large else small_size
        clip = 0.0 if name in ("eurnn", "goru") else 1.0
        yield name, {"unit": unit, "hidden_size": size, "unit_options": {**options, **more}, "clip": clip}


def add_nru_memory() -> None:
    nru: Settings = {"unit": "nru", "hidden_size": 80, "unit_options": {"memory_size": 64, "num_heads": 4}}
    for name, (task, words, settings, length, how) in NRU_MEMORY.items():
        shared = (ENDLESS_RUN, MEMORY_RUN, settings)
        put(task, f"nru-{name}", f"NRU, {words}", *shared, nru, {"clip": 1.0}, how)
        for rival, its in rivals(False, length):
            put(task, f"nru-{name}-{rival}", f"NRU, {words}: {rival}", *shared, its)
    add_nru_checks(nru)
    words, task = "NRU, Table 3: permuted MNIST", "memory.psmnist"
    large: Settings = {"hidden_size": 212, "unit_options": {"memory_size": 256, "num_heads": 4}, "clip": 1.0}
    put(task, "nru-psmnist", words, IMAGES, nru, large)
    for rival, its in rivals(True, 785):
        put(task, f"nru-psmnist-{rival}", f"{words}: {rival}", IMAGES, its)


def add_nru_checks(nru: Settings) -> None:
    """Of the section Model Analysis: does it forget, does it stay stable."""
    shared = (ENDLESS_RUN, MEMORY_RUN, nru, NRU_MEMORY["copy-100"][-1])
    for kept in (2, 5, 10):
        words = f"NRU, Forgetting Ability: copying, the memory reset every {kept} examples"
        put("memory.copy", f"nru-forget-{kept}", words, *shared, {"span": 100, "reset_every": kept})
    for span in (100, 200, 500):
        words = f"NRU, Stability: copying, T = {span}, random labels"
        put("memory.copy", f"nru-stable-{span}", words, *shared, {"span": span, "random_labels": True})


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


# -------------------------------------------------------------------------------- classification

SENTENCE_SETS = ("cr", "subj", "mr", "trec", "mpqa", "sst")
# The authors' vectors are word2vec's of 300 dimensions; these have 50.
SENTENCES: Settings = {
    **{"vocabulary": "all", "vectors": "glove50", "embedding_size": 50, "unit_norm": True, "tuned": "none"},
    **{"padding": "left", "order": "file", "batch": 32, "pooling": "last", "clip": 0.0},
    **{"optimiser": "adam", "lr": 1e-3, "epochs": 100},
}


def sentence_models() -> Iterator[tuple[str, str, Settings]]:
    """The models of SRU's Table 1: the dropout p is that of words and of the vector of a sentence."""
    half: Settings = {"input_dropout": 0.5, "pooled_dropout": 0.5}
    yield "cnn", "CNN of widths 3, 4 and 5", {"unit": "cnn", "hidden_size": 100, **half}
    recurrent: Settings = {"hidden_size": 128, **half}
    yield "lstm", "LSTM, 2 layers", {**recurrent, "unit": "lstm", "num_layers": 2, "layer_dropout": 0.5}
    for layers, rate in ((2, 0.5), (4, 0.5), (8, 0.55)):
        dropouts = {"input_dropout": rate, "pooled_dropout": rate, "unit_options": {"cell_dropout": rate}}
        sru = {**recurrent, "unit": "sru", "num_layers": layers, **dropouts}
        yield f"sru{layers}", f"SRU, {layers} layers", sru


def add_classification() -> None:
    for name in SENTENCE_SETS:
        # Only the batches of SST are sorted by length.
        own: Settings = {"set": name, "order": "sorted" if name == "sst" else "file"}
        for model, words, settings in sentence_models():
            about = f"SRU, Table 1: {words}, {name.upper()} with GloVe vectors of 50 dimensions"
            put("classify", f"sru-classify-{name}-{model}", about, SENTENCES, own, settings)
    for name, epochs in (("imdb", 6), ("agnews", 10)):
        about = f"LRN, Table 2: documents, {name} with GloVe vectors of 50 dimensions"
        put("classify", f"lrn-doc-{name}", about, DOCUMENTS, {"set": name, "epochs": epochs})


# What the LRN authors' models of sentence pairs and of documents share.
WORDS_AND_CHARACTERS: Settings = {
    **{"vocabulary": "vectors", "vectors": "glove50", "embedding_size": 50, "tuned": "special"},
    **{"inputs": "both", "least_character": 4, "num_layers": 1, "input_dropout": 0.0, "output_dropout": 0.1},
    **{"init": "uniform", "init_scale": 0.08, "label_smoothing": 0.1, "order": "chunks"},
    **{"optimiser": "adam", "lr": 1e-3, "epsilon_unscaled": True, "weight_decay": 3e-5, "clip": 5.0},
    **{"schedule": "after", "decay": 0.5, "decay_after": 1},
    **{"ema": 0.9999, "ema_warmup": True},
}
DOCUMENTS: Settings = {
    **WORDS_AND_CHARACTERS,
    **{"character_size": 32, "max_length": 400, "batch": 64, "eval_batch": 64},
    **{"unit": "lrn", "hidden_size": 64, "bidirectional": True, "pooling": "attentive"},
    **{"word_dropout": 0.1, "character_dropout": 0.05, "pooled_dropout": 0.0},
}
PAIRS: Settings = {
    **WORDS_AND_CHARACTERS,
    **{"set": "snli", "character_size": 64, "max_length": 100, "batch": 128, "eval_batch": 128},
    **{"hidden_size": 300, "heads": 4, "character_dropout": 0.15, "epochs": 10, "evaluate_every": 1000},
}
# The units as the LRN authors' models of sentence pairs have them.
PAIR_UNITS: dict[str, Settings] = {
    "lstm": {},
    "gru": {"form": "before"},
    "atr": {},
    "sru": {"full_bias": True, "rescale": False, "skip": "matrix"},
    "lrn": {},
}


def add_lrn_snli() -> None:
    for unit, options in PAIR_UNITS.items():
        about = f"LRN, Table 1: {unit.upper()}, SNLI with GloVe vectors of 50 dimensions"
        settings: Settings = {"unit": unit, "unit_options": options}
        put("nli", f"lrn-snli-{unit}", about, PAIRS, settings)
        put("nli", f"lrn-snli-{unit}-norm", f"{about}; with the norm", PAIRS, settings, {"norm": "rms"})


# ------------------------------------------------------------------------------------------ reading

# DrQA's reader as the SRU authors train it.
READER: Settings = {
    **{"set": "squad", "vectors": "glove50", "embedding_size": 50, "tuned_words": 1002, "tags": True},
    **{"hidden_size": 128, "input_dropout": 0.5, "output_dropout": 0.2, "padding": "read"},
    **{"batch": 32, "eval_batch": 1, "order": "shuffled"},
    **{"optimiser": "adamax", "lr": 1e-3, "clip": 20.0, "epochs": 100},
}
READER_LSTM: Settings = {
    **{"unit": "lstm", "num_layers": 3, "joined": True, "tag_sizes": [12, 8], "padding": "masked"},
    **{"input_dropout": 0.3, "layer_dropout": 0.3, "output_dropout": 0.3, "eval_batch": 32},
    **{"lr": 2e-3, "clip": 10.0},
}
RNET: Settings = {
    **{"set": "squad", "target": "last", "longest": 16, "max_length": 400, "vectors": "glove50"},
    **{"form": "rnet", "embedding_size": 50, "tuned": "none", "hidden_size": 75, "num_layers": 3},
    **{"read_dropout": 0.3, "input_dropout": 0.0, "output_dropout": 0.0},
    **{"batch": 64, "eval_batch": 64, "order": "shuffled", "optimiser": "adadelta", "rho": 0.95},
    **{"epsilon": 1e-6, "lr": 0.5, "clip": 5.0, "steps": 60_000, "evaluate_every": 1000, "select": "last"},
    **{"schedule": "patient", "decay": 0.5, "decay_patience": 3, "best_by": "loss"},
}


def add_reading() -> None:
    data = "38 articles of SQuAD, GloVe vectors of 50 dimensions"
    for layers in (3, 4, 6):
        about = f"SRU, Table 2: DrQA's reader with {layers} layers of SRU, {data}"
        rates = {"input_dropout": 0.2, "cell_dropout": 0.2}
        own: Settings = {"unit": "sru", "num_layers": layers, "unit_options": rates}
        put("read", f"sru-squad-sru{layers}", about, READER, own)
    put("read", "sru-squad-lstm3", f"SRU, Table 2: DrQA's reader with LSTM, {data}", READER, READER_LSTM)
    for unit, options in PAIR_UNITS.items():
        about = f"LRN, Table 4: R-Net with {unit.upper()}, {data}"
        put("read", f"lrn-squad-{unit}", about, RNET, {"unit": unit, "unit_options": options})


# ----------------------------------------------------------------------------------- translation

# The papers translate WMT 2014 with models of 76M to 206M parameters; these are small forms for Multi30k.
MULTI30K: Settings = {
    **{"set": "multi30k", "direction": "en-de", "pieces": 8000, "label_smoothing": 0.1, "dropout": 0.1},
    **{"optimiser": "adam", "length_penalty": 0.6},
}
# SRU's 5,120 tokens, of which an update has five batches, and 16,000 updates of warm-up, made smaller.
SMALL_TRANSFORMER: Settings = {
    **{"form": "transformer", "hidden_size": 128, "inner_size": 512, "heads": 4, "beam": 5},
    **{"tokens": 1024, "epochs": 12, "best_by": "bleu", "clip": 0.0, "betas": (0.9, 0.998), "epsilon": 1e-9},
    **{"lr": 2.0, "schedule": "noam", "width": 128, "warmup": 800},
}
SRU_TRANSLATORS: dict[str, tuple[str, Settings]] = {
    "base": ("Transformer, 3 layers", {"num_layers": 3}),
    "sru": (
        "Transformer with SRU, 2 layers",
        {"num_layers": 2, "feed_forward": "unit", "unit": "sru", "unit_options": {"cell_dropout": 0.1}},
    ),
}
# The constants of the schedule are not published: the rate rises to 1e-3 in 400 updates, and falls from
# update 1,200 on.
SMALL_RECURRENT: Settings = {
    **{"form": "recurrent", "hidden_size": 256, "num_layers": 2, "heads": 8, "beam": 4, "shared": False},
    **{"tokens": 2048, "epochs": 10, "clip": 1.0, "lr": 2.5e-4, "schedule": "gnmt", "peak": 4},
    **{"warmup": 100, "decay_start": 4800, "decay_end": 9600},
}
# The units as the LRN authors' translator has them.
LRN_TRANSLATORS: dict[str, Settings] = {
    **{name: NER_UNITS[name] for name in ("atr", "sru")},
    "gru": {"form": "before"},
    "lrn": {"activation": "identity"},
    "olrn": {},
}


def add_translation() -> None:
    for name, (words, settings) in SRU_TRANSLATORS.items():
        about = f"SRU, Table 3: {words}, in a small form for Multi30k"
        put("translate", f"sru-translate-{name}", about, MULTI30K, SMALL_TRANSFORMER, settings)
    for unit, options in LRN_TRANSLATORS.items():
        about = f"LRN, Table 3: {unit.upper().replace('OLRN', 'oLRN')}, in a small form for Multi30k"
        own: Settings = {"unit": unit, "unit_options": options}
        put("translate", f"lrn-translate-{unit}", about, MULTI30K, SMALL_RECURRENT, own)


BOOKS: tuple[Callable[[], None], ...] = (
    *(add_ran, add_lrn, add_lrn_ner, add_nru, add_nru_memory),
    *(add_sru, add_scrn, add_classification, add_lrn_snli, add_reading, add_translation),
)
for book in BOOKS:
    book()
