"""What the page has to know of a model besides its step: how it reads a text, and what its outputs mean."""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from linnet.analysis.layers import Variances, layer_variances
from linnet.analysis.sums import NotASum, gated_sum
from linnet.data.vocabulary import EOS, WORD, Vocabulary
from linnet.layers.crf import CRF
from linnet.models.classifier import Classifier
from linnet.models.encoder import Encoder, Text
from linnet.models.language import LanguageModel
from linnet.models.sequence import SequenceModel
from linnet.models.tagger import Tagger, Words
from linnet.recurrent.cell import Cell
from linnet.recurrent.modes import evaluating
from linnet.recurrent.recurrent import Recurrent
from linnet.run.choose import backend
from linnet.units import SRUCell

Info = dict[str, Any]
BLANKS = re.compile(r"\S+")


class CannotShow(ValueError):  # noqa: N818, it is a reason more than an error
    """The lens cannot show a model; the message says why and what to do."""


class Outputs(NamedTuple):
    """What the outputs of a model are."""

    kind: str  # "next" token, "class" of the text, "tags" of the words, or "answers"
    labels: Sequence[str] | None  # None for "next": the tokens


def describe(
    model: nn.Module,
    text: Info,
    *,
    name: str,
    about: str = "",
    labels: Sequence[str] | None = None,
    counts: Sequence[int] | None = None,
    passages: Sequence[str] = (),
) -> Info:
    """Return what the page has to know of a model.

    text       how texts become tokens; see `text_of`
    labels     what the outputs mean, for models that do not predict tokens
    counts     how often each token occurs in the training text
    passages   texts among which the page searches for similar states
    """
    cells = cells_of(model)
    outputs = outputs_of(model, labels)
    return {
        "name": name,
        "unit": cells[0].unit_name,
        "about": about or about_model(model, cells),
        "layers": [layer_of(cell) for cell in cells],
        "text": text,
        "says": outputs.kind,
        "labels": None if outputs.labels is None else list(outputs.labels),
        "counts": None if counts is None else list(counts),
        "passages": list(passages),
        "crf": crf_of(model),
        "variances": variances_of(model, len(text["tokens"])),
    }


def cells_of(model: nn.Module) -> list[Cell]:
    """Return the cells of all layers, in the order in which the exported step has them."""
    return [module for module in model.modules() if isinstance(module, Cell)]


def about_model(model: nn.Module, cells: Sequence[Cell]) -> str:
    size = sum(weight.numel() for weight in model.parameters())
    layers = f"{len(cells)} layer{'s' if len(cells) > 1 else ''} of {cells[0].unit_name}"
    return f"{layers}, {cells[0].hidden_size} channels, {size:,} parameters"


def layer_of(cell: Cell) -> Info:
    """Return the states of a layer, and the gated sum that one of them is."""
    layer: Info = {"unit": cell.unit_name, "states": list(cell.states), "sum": None}
    try:
        found = gated_sum(cell)
    except NotASum as reason:
        return {**layer, "without": str(reason)}
    return {**layer, "size": cell.states[found.state], "sum": found._asdict()}


def outputs_of(model: nn.Module, labels: Sequence[str] | None) -> Outputs:
    if isinstance(model, LanguageModel):
        return Outputs("next", None)
    kinds = {Classifier: "class", Tagger: "tags", SequenceModel: "answers"}
    kind = next((kind for each, kind in kinds.items() if isinstance(model, each)), "answers")
    if labels is None:
        count = getattr(getattr(model, "output", None), "out_features", None)
        if count is None:
            raise CannotShow(
                f"the lens does not know what the outputs of {type(model).__name__} mean; pass labels=[...]"
            )
        labels = [str(number) for number in range(count)]
    return Outputs(kind, labels)


def crf_of(model: nn.Module) -> Info | None:
    """Return the scores of pairs of tags, and of the first and the last one; None: there is no CRF."""
    decoder = getattr(model, "decoder", None)
    if not isinstance(decoder, CRF):
        return None
    scores = {"start": decoder.start_transitions, "pairs": decoder.transitions}
    end = decoder.end_transitions if decoder.use_end else torch.zeros_like(decoder.end_transitions)
    return {name: each.detach().tolist() for name, each in {**scores, "end": end}.items()}


# ----------------------------------------------------------------------------------------- texts


def text_of(
    vocabulary: Vocabulary | Sequence[str],
    pattern: re.Pattern[str] | None = None,
    rewrites: Sequence[tuple[re.Pattern[str], str]] = (),
) -> Info:
    """Return how a text becomes tokens, by a vocabulary of Linnet or by a list of words or characters.

    pattern    finds the words, if they are not those of `vocabulary.encode`
    rewrites   what is replaced before; {} in the replacement is what was found
    """
    if not isinstance(vocabulary, Vocabulary):
        tokens = [str(token) for token in vocabulary]
        vocabulary = Vocabulary("char" if all(len(token) == 1 for token in tokens) else "word", tuple(tokens))
    own = None if vocabulary.words == "blanks" else WORD
    splits_lines = pattern is None and vocabulary.level == "word" and EOS in vocabulary.index
    return {
        "level": vocabulary.level,
        "pattern": javascript_pattern(pattern or own or BLANKS),
        "rewrites": [(javascript_pattern(each), new.replace("{}", "$&")) for each, new in rewrites],
        "lowercase": vocabulary.lowercase,
        "tokens": list(vocabulary.tokens),
        "unknown": -1 if vocabulary.unk is None else vocabulary.unk,
        "end": EOS if splits_lines else None,
        "merges": list(vocabulary.merges),
    }


def javascript_pattern(pattern: re.Pattern[str]) -> str:
    """Return a pattern for JavaScript, where \\w has no letters but those of English."""
    letters = r"\p{L}\p{M}\p{N}_"

    def widened(found: re.Match[str]) -> str:
        return found[0].replace(r"\w", letters if found[0].startswith("[") else f"[{letters}]")

    return re.sub(r"\[[^\]]*\]|\\w", widened, pattern.pattern)


# ------------------------------------------------------------------------------------- variances

# Random sequences on which variances are measured: their number and their length.
SEQUENCES, LENGTH = 64, 32


@torch.no_grad()
def variances_of(model: nn.Module, tokens: int) -> list[Info]:
    """Return curves over the layers: the variances of states and outputs, relative to the first input.

    The input is random tokens. A stack of SRU has curves for new weights too, with and without alpha.
    """
    if not isinstance(model, Encoder) or len(model.stack) < 2:
        return []
    with torch.random.fork_rng(devices=[]), evaluating(model), backend("reference"):
        torch.manual_seed(0)
        x = model.read(tokens_for(model, torch.randint(tokens, (LENGTH, SEQUENCES))))
        curves = [("trained", model.stack)]
        if any(
            isinstance(cell, SRUCell) and cell.alpha != 1.0 for layer in model.stack for cell in layer.cells
        ):
            curves += [("new, with alpha", renewed(model, True)), ("new, without", renewed(model, False))]
        return [curve for label, stack in curves for curve in curves_of(label, layer_variances(stack, x))]


def tokens_for(model: Encoder, tokens: Tensor) -> Any:
    """Return tokens as `model.read` takes them."""
    if isinstance(model, Tagger):
        return Words(tokens, None)
    return Text(tokens) if isinstance(model, Classifier) else tokens


def renewed(model: Encoder, corrects: bool) -> list[Recurrent]:
    """Return the layers with new weights; SRU's with its correction alpha or without it."""
    layers = [deepcopy(layer) for layer in model.stack]
    torch.manual_seed(0)
    for layer in layers:
        layer.reset_parameters()
        for cell in layer.cells:
            cell.alpha = cell.alpha if corrects else 1.0
    return layers


def curves_of(label: str, found: Sequence[Variances]) -> list[Info]:
    first = found[0].x
    return [
        {"label": f"{label}: state", "values": [each.c / first for each in found]},
        {"label": f"{label}: output", "values": [each.h / first for each in found]},
    ]
