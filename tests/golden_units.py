"""How the files of recorded models name the weights of cells and of parts of models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from golden_cases import Vectors
from torch import Tensor

Parameters = dict[str, Tensor]


def under(prefix: str, parameters: Parameters) -> Parameters:
    return {f"{prefix}.{name}": tensor for name, tensor in parameters.items()}


# ------------------------------------------------------------------------------- the LRN authors' cells

# The bias that is added to each product.
BIASES = {"W": "b", "U": "bu", "Wg": "bg", "Wc": "bc", "Ug": "bug", "Uc": "buc", "Wq": "bq", "Wm": "bm"}


class Product:
    """One product of a cell: its matrix, its norm and its bias, with the gates in our order."""

    def __init__(self, v: Vectors, prefix: str, name: str, order: Sequence[int] = (0,)):
        def ours(key: str) -> Tensor | None:
            return in_order(v[f"{prefix}{key}"].t(), order) if f"{prefix}{key}" in v else None

        self.weight = ours(name)
        self.bias = ours(BIASES[name])
        self.norm = {"weight": ours(f"{name}_scale"), "bias": ours(f"{name}_offset")}

    def norms(self, name: str) -> Parameters:
        return {f"{name}.{key}": tensor for key, tensor in self.norm.items() if tensor is not None}


def in_order(tensor: Tensor, order: Sequence[int]) -> Tensor:
    chunks = tensor.chunk(len(order))
    return torch.cat([chunks[number] for number in order])


def linear(v: Vectors, prefix: str, name: str = "W") -> Parameters:
    """A matrix with its norm and its bias, as NormedLinear and the input of a cell have them."""
    return simple(Product(v, prefix, name))


def simple(product: Product) -> Parameters:
    bias = {} if product.bias is None else {"bias": product.bias}
    return {"weight": product.weight, **bias, **product.norms("norm")}


def total(*biases: Tensor | None) -> Tensor | None:
    """The sum of the two biases that the authors have, where we have one."""
    given = [bias for bias in biases if bias is not None]
    return sum(given[1:], given[0]) if given else None


def lrn_cell(v: Vectors, prefix: str) -> Parameters:
    return under("input", linear(v, prefix))


def atr_cell(v: Vectors, prefix: str) -> Parameters:
    x, h = Product(v, prefix, "W"), Product(v, prefix, "U")
    if x.bias is None and h.bias is not None:
        x.bias = torch.zeros_like(h.bias)
    return {**under("input", simple(x)), **under("recurrent", simple(h))}


def sru_cell(v: Vectors, prefix: str) -> Parameters:
    """Their columns are r, f, candidate, skip."""
    product = simple(Product(v, prefix, "W", (3, 2, 1, 0)))
    gates = {"v_f": v[f"{prefix}vf"].flatten(), "v_r": v[f"{prefix}vr"].flatten()}
    return {**under("input", product), **gates}


def gru_cell(v: Vectors, prefix: str) -> Parameters:
    """Their gates are z, r."""
    gates, recurrent = (Product(v, prefix, name, (1, 0)) for name in ("Wg", "Ug"))
    new, candidate = (Product(v, prefix, name) for name in ("Wc", "Uc"))
    biases = [total(gates.bias, recurrent.bias), total(new.bias, candidate.bias)]
    return {
        **joined("input", [gates, new], biases),
        **joined("recurrent", [recurrent], []),
        **joined("candidate", [candidate], []),
    }


def lstm_cell(v: Vectors, prefix: str) -> Parameters:
    """Their gates are i, f, o, as ours; the content comes first here."""
    of_x, of_h = ([Product(v, prefix, name) for name in names] for names in (("Wc", "Wg"), ("Uc", "Ug")))
    biases = [total(x.bias, h.bias) for x, h in zip(of_x, of_h, strict=True)]
    return {**joined("input", of_x, biases), **joined("recurrent", of_h, [])}


def joined(name: str, products: list[Product], biases: Sequence[Tensor | None]) -> Parameters:
    """Several products of theirs as one of ours, with a norm for each."""
    parameters = {f"{name}.weight": torch.cat([product.weight for product in products])}
    given = [bias for bias in biases if bias is not None]
    if given:
        parameters[f"{name}.bias"] = torch.cat(given)
    for number, product in enumerate(products):
        place = f"{name}.norm.norms.{number}" if len(products) > 1 else f"{name}.norm"
        parameters |= product.norms(place)
    return parameters


# By unit: how its weights are read, and the options of the LRN authors' form.
CELLS: dict[str, tuple[Callable[[Vectors, str], Parameters], dict[str, Any]]] = {
    "lrn": (lrn_cell, {}),
    "olrn": (lrn_cell, {}),
    "atr": (atr_cell, {}),
    "sru": (sru_cell, {"skip": "matrix", "full_bias": True, "rescale": False}),
    "gru": (gru_cell, {"form": "before"}),
    "lstm": (lstm_cell, {}),
}


def cell_parameters(v: Vectors, prefix: str) -> Parameters:
    return CELLS[v.meta["unit"]][0](v, f"{prefix}.")


# ------------------------------------------------------------------------------------- parts of models


def text_settings(v: Vectors) -> dict[str, Any]:
    """The settings that the LRN authors' classifiers of texts and of pairs have in common."""
    return {
        "unit": v.meta["unit"],
        "unit_options": CELLS[v.meta["unit"]][1],
        "inputs": "both",
        "tuned": "special",
        "embedding_size": v["w.emb_special"].shape[1],
        "character_size": v["w.emb_char"].shape[1],
        "hidden_size": v.meta["hidden"],
    }


def character_parameters(table: Tensor, weight: Tensor, bias: Tensor) -> Parameters:
    return {"embedding.weight": table, "linear.weight": weight.T, "linear.bias": bias}


def pooling_parameters(v: Vectors, prefix: str) -> Parameters:
    parameters = {
        "hidden.weight": v[f"{prefix}W"].T,
        "hidden.bias": v[f"{prefix}b"],
        "score.weight": v[f"{prefix}v"].T,
    }
    if f"{prefix}Wq" in v:
        parameters |= {"query.weight": v[f"{prefix}Wq"].T, "query.bias": v[f"{prefix}bq"]}
    return parameters


def attention_parameters(v: Vectors, prefix: str) -> Parameters:
    score = {"weight": v[f"{prefix}w"].T, "bias": v[f"{prefix}b"]}
    return {
        **under("key", linear(v, prefix, "Wm")),
        **under("query", linear(v, prefix, "Wq")),
        **under("score", score),
    }


def gated_parameters(v: Vectors, prefix: str) -> Parameters:
    names = {"query": "Wx", "key": "Wm", "gate": "Wg"}
    return {f"{name}.weight": v[f"{prefix}{theirs}"].T for name, theirs in names.items()}


def pointer_parameters(v: Vectors) -> Parameters:
    cell = tensorflow_gru(v, "w.gru.", v["w.gru.Wc"].shape[1])
    scores = {"hidden.weight": v["w.ptr.W"].T, "score.weight": v["w.ptr.v"].T}
    return {**under("cell", cell), **scores}


def tensorflow_gru(v: Vectors, prefix: str, size: int) -> Parameters:
    """Rows are x, h; columns of the gates are r, u."""
    gates, candidate = v[f"{prefix}Wg"].T, v[f"{prefix}Wc"].T
    return {
        "input.weight": torch.cat([gates[:, :-size], candidate[:, :-size]]),
        "input.bias": torch.cat([v[f"{prefix}bg"], v[f"{prefix}bc"]]),
        "recurrent.weight": gates[:, -size:],
        "candidate.weight": candidate[:, -size:],
    }
