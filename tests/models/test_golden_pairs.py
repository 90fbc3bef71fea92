"""Truth: the LRN authors' model for natural language inference."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from golden_cases import Vectors
from golden_checks import call, check_loss, close, files
from golden_units import (
    Parameters,
    attention_parameters,
    cell_parameters,
    character_parameters,
    linear,
    pooling_parameters,
    text_settings,
    under,
)

from linnet.layers.class_output import smoothed_cross_entropy
from linnet.models.encoder import Text
from linnet.models.pair import PairClassifier, PairConfig

pytestmark = pytest.mark.usefixtures("_backends")


def pair_model(v: Vectors) -> PairClassifier:
    special, size = v["w.emb_special"].shape
    config = PairConfig(
        **text_settings(v),
        heads=v.meta["heads"],
        norm=v.meta["norm"],
        attention_size=v["w.pool_p.W"].shape[1],
    )
    words, classes = special + len(v["w.emb_frozen"]), v["logits"].shape[1]
    model = PairClassifier(words, classes, config, characters=len(v["w.emb_char"])).double()
    model.embedding.set_rows(torch.cat([torch.zeros(special, size), v["w.emb_frozen"]]))
    model.characters.slots = v["pc"].shape[-1]
    return model


def pair_parameters(v: Vectors) -> Parameters:
    characters = character_parameters(v["w.emb_char"], v["w.char.W"], v["w.char.b"])
    parameters = {
        "embedding.special": v["w.emb_special"],
        **under("characters", characters),
        **under("start", linear(v, "w.init.")),
        **under("matching.lower", cell_parameters(v, "w.lower")),
        **under("matching.higher", cell_parameters(v, "w.higher")),
        **under("matching.attention", attention_parameters(v, "w.att.")),
        **under("pool_premise", pooling_parameters(v, "w.pool_p.")),
        **under("pool_hypothesis", pooling_parameters(v, "w.pool_h.")),
        **under("output", linear(v, "w.label.")),
    }
    stacks = {"layers": "enc_p", "after_premise.layers": "post_p", "after_hypothesis.layers": "post_h"}
    for ours, theirs in stacks.items():
        for number, direction in enumerate(("fw", "bw")):
            cell = cell_parameters(v, f"w.{theirs}.{direction}")
            parameters |= under(f"{ours}.0.directions.{number}.cell", cell)
    return parameters


@files("snli_full_*")
def test_natural_language_inference(path: Path):
    v = Vectors(path)
    texts = [Text(v[key].T, v[f"{key}c"].transpose(0, 1)) for key in "ph"]
    real = [v[key] != 0 for key in "ph"]
    lengths = [mask.sum(1) for mask in real]
    model = pair_model(v)
    found = call(model, pair_parameters(v), *texts, *lengths, function=PairClassifier.compare)
    close(found.premise.transpose(0, 1)[real[0]], v["premise_seq"][real[0]], "premise")
    close(found.hypothesis.transpose(0, 1)[real[1]], v["hyp_seq"][real[1]], "hypothesis")
    close(found.features, v["feature"], "features")
    close(found.logits, v["logits"], "logits")
    assert torch.equal(found.logits.argmax(-1), v["pred"])
    cross_entropy = smoothed_cross_entropy(found.logits, v["l"], 0.1).mean()
    close(cross_entropy, v["ce"], "cross entropy")
    decay = sum(v[key].square().sum() for key in v.gradients)
    check_loss(v, cross_entropy + 3e-5 * decay / 2)
