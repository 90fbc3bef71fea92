"""Named entities, classification, inference, reading and translation."""

from __future__ import annotations

from collections.abc import Iterator

from linnet.train.recipes.book import Settings, put

# ------------------------------------------------------------------------------- named entities

# The units as the LRN authors' tagger has them.
NER_UNITS: dict[str, Settings] = {
    "lstm": {"init": "xavier", "second_bias": False},
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


# What the LRN authors' models of sentence pairs and of documents, in TensorFlow, share.
WORDS_AND_CHARACTERS: Settings = {
    **{"vocabulary": "vectors", "vectors": "glove50", "embedding_size": 50, "tuned": "special"},
    **{"inputs": "both", "least_character": 4, "num_layers": 1, "input_dropout": 0.0, "output_dropout": 0.1},
    **{"init": "uniform", "init_scale": 0.08, "label_smoothing": 0.1, "order": "chunks"},
    **{"optimiser": "adam", "lr": 1e-3, "epsilon_unscaled": True, "weight_decay": 3e-5},
    **{"clip": 5.0, "clip_exact": True},
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
    **{"epsilon": 1e-6, "lr": 0.5, "clip": 5.0, "clip_exact": True},
    **{"steps": 60_000, "evaluate_every": 1000, "select": "last"},
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
    **{"tokens": 2048, "epochs": 10, "lr": 2.5e-4, "schedule": "gnmt", "peak": 4},
    **{"clip": 1.0, "clip_exact": True},
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
