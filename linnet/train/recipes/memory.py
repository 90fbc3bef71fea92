"""The memory tasks of the NRU paper, those of the papers of LEM, coRNN and UnICORNN, and digits by rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from linnet.train.recipes.book import Settings, put

PEEPHOLES: Settings = {"peepholes": True, "init": "orthogonal", "second_bias": False}
NORMED: Settings = {"nonlinearity": "relu", "layer_norm": True, "second_bias": False}
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
    """The runs of the section Model Analysis, on forgetting and on stability."""
    shared = (ENDLESS_RUN, MEMORY_RUN, nru, NRU_MEMORY["copy-100"][-1])
    for kept in (2, 5, 10):
        words = f"NRU, Forgetting Ability: copying, the memory reset every {kept} examples"
        put("memory.copy", f"nru-forget-{kept}", words, *shared, {"span": 100, "reset_every": kept})
    for span in (100, 200, 500):
        words = f"NRU, Stability: copying, T = {span}, random labels"
        put("memory.copy", f"nru-stable-{span}", words, *shared, {"span": span, "random_labels": True})


# ------------------------------------------------------------------------------------- oscillators

# The settings are the defaults of the authors' scripts, which have no dropout where nothing is said of it.
WITHOUT_CLIP: Settings = {"optimiser": "adam", "clip": 0.0}
ADDING_RUN: Settings = {
    **{**WITHOUT_CLIP, "batch": 50, "eval_examples": 1000},
    **{"evaluate_every": 100, "log_every": 20},
}
IMAGE_RUN: Settings = {
    **{**WITHOUT_CLIP, "images": "mnist", "eval_batch": 1000, "epochs": 120},
    **{"schedule": "once", "decay": 0.1, "decay_after": 100},
}


def oscillator(unit: str, hidden_size: int, lr: float, constants: Settings, **more: Any) -> Settings:
    return {"unit": unit, "hidden_size": hidden_size, "lr": lr, "unit_options": constants, **more}


LEM_IMAGES: Settings = {"batch": 128, "seed": 5544}
# name: its words and settings
# IndRNN's authors also have batch norm and dropout between layers; the epochs here are the oscillators'.
INDRNN = oscillator("indrnn", 128, 2e-4, {"steps": 784, "growth": 5.0}, num_layers=6)
ON_IMAGES: dict[str, tuple[str, Settings]] = {
    "indrnn-smnist": ("IndRNN: sequential MNIST, without batch norm", INDRNN),
    "indrnn-psmnist": ("IndRNN: permuted MNIST, without batch norm", INDRNN),
    "lem-smnist": (
        "LEM: sequential MNIST",
        oscillator("lem", 128, 0.0018, {"dt": 0.21}, clip=1.0, **LEM_IMAGES),
    ),
    "lem-psmnist": (
        "LEM: permuted MNIST",
        oscillator("lem", 128, 0.0073, {"dt": 0.31}, clip=1.1, **LEM_IMAGES),
    ),
    "cornn-smnist": (
        "coRNN: sequential MNIST",
        oscillator("cornn", 256, 0.0021, {"dt": 0.042, "gamma": 2.7, "epsilon": 4.7}, batch=120),
    ),
    "cornn-psmnist": (
        "coRNN: permuted MNIST",
        oscillator("cornn", 256, 0.0054, {"dt": 0.076, "gamma": 0.4, "epsilon": 8.0}, batch=120, seed=12008),
    ),
    "unicornn-psmnist": (
        "UnICORNN: permuted MNIST, without dropout",
        oscillator("unicornn", 256, 0.00251, {"dt": 0.19, "alpha": 30.65}, num_layers=3, batch=32, seed=5544)
        | {"epochs": 2600, "decay_after": 650},
    ),
}


def add_oscillators() -> None:
    for name, (words, its) in ON_IMAGES.items():
        put(f"memory.{name.partition('-')[2]}", name, words, IMAGE_RUN, its)
    for span in (2000, 5000, 10_000):
        lem = oscillator("lem", 128, 0.0026, {"dt": 0.0242}, span=span, steps=30_000)
        put("memory.adding", f"lem-adding-{span}", f"LEM: the adding problem, T = {span}", ADDING_RUN, lem)
    constants = {"dt": 0.06, "gamma": 66.0, "epsilon": 15.0}
    cornn = oscillator("cornn", 128, 0.02, constants, span=100, steps=60_000)
    put("memory.adding", "cornn-adding-100", "coRNN: the adding problem, T = 100", ADDING_RUN, cornn)
    fitzhugh = oscillator("lem", 16, 0.00904, {"dt": 1.0}, epochs=400, seed=1234)
    put("memory.fitzhugh", "lem-fitzhugh", "LEM: the FitzHugh-Nagumo system", WITHOUT_CLIP, fitzhugh)


# ----------------------------------------------------------------------------------- digits by rows

# The defaults of the example of FastRNN and FastGRNN, which reads 7,291 images of USPS, 16 by 16 pixels, and
# makes the mean of each pixel 0 and its variance 1. These read the small digits, from 0 to 1.
ROWS: Settings = {
    **{**WITHOUT_CLIP, "images": "digits", "batch": 100, "hidden_size": 32, "lr": 0.01},
    **{"epochs": 300, "schedule": "once", "decay": 0.1, "decay_after": 200},
}
BY_ROWS = {
    "fastgrnn": "FastGRNN: digits by rows",
    "fastrnn": "FastRNN: digits by rows",
    "lem": "LEM with the settings of FastGRNN: digits by rows",
}


def add_rows() -> None:
    for unit, words in BY_ROWS.items():
        put("memory.rows", f"{unit}-rows", words, ROWS, {"unit": unit})
