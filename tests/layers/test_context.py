"""Vectors of words by an encoder of transformers, and models that read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import liven
from tiny_encoder import write_encoder
from torch import Tensor, nn

from linnet.data.encoders import describe, load
from linnet.layers.context import Context, ContextShape, ContextVectors, How, LayerMix, encode
from linnet.models.classifier import Classifier, ClassifierConfig
from linnet.models.encoder import Text
from linnet.models.pair import PairClassifier, PairConfig
from linnet.models.reader import DocumentReader, Passage, ReaderConfig, RNet
from linnet.models.tagger import Tagger, TaggerConfig
from linnet.models.translator import TranslatorConfig, make_translator

SIZE, LAYERS = 5, 3


@pytest.fixture(scope="module")
def name(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_encoder(tmp_path_factory.mktemp("bert") / "bert"))


def hidden_of(name: str, *words: str) -> Any:
    """What transformers itself gives for a text."""
    from transformers import AutoTokenizer

    pieces = AutoTokenizer.from_pretrained(name)([*words], is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        return load(describe(name))(**pieces, output_hidden_states=True)


def read(name: str, key: Any, how: How) -> Tensor:
    with torch.no_grad():
        # Beside another text, so that there is padding.
        texts = describe(name).pieces.read([key, (("a", "b") * 5,)])
        return encode(load(describe(name)), texts, how)[0]


def test_vectors_are_those_of_transformers(name: str):
    found = hidden_of(name, "ab", "cde", "f")  # pieces 1-2, 3-5 and 6
    last = found.last_hidden_state[0]
    first = read(name, (("ab", "cde", "f"),), How())
    assert first.shape == (4, 1, 8)
    torch.testing.assert_close(first[:, 0], torch.cat([found.pooler_output, last[[1, 3, 6]]]))
    mean = read(name, (("ab", "", "cde", "f"),), How(every_layer=True, mean=True, pooler=False))
    layers = torch.stack(found.hidden_states)[:, 0].transpose(0, 1)
    torch.testing.assert_close(mean[0], last[:1].expand(3, -1))
    expected = [layers[1:3].mean(0), torch.zeros(3, 8), layers[3:6].mean(0), layers[6]]
    torch.testing.assert_close(mean[1:], torch.stack(expected))


def test_the_vector_of_a_long_text_is_the_mean_of_its_windows(name: str):
    words = ("ab",) * 9  # 18 pieces, 12 in a window of which 2 are special, 3 in two windows
    found = read(name, (words,), How())
    windows = [hidden_of(name, *["ab"] * 5), None]
    assert found.shape == (10, 1, 8)
    torch.testing.assert_close(found[1:5, 0], windows[0].last_hidden_state[0, 1:9:2])
    reading = describe(name).pieces.read([(words,)])[0]
    with torch.no_grad():
        each = [
            load(describe(name))(torch.tensor([window.pieces])).pooler_output for window in reading.windows
        ]
    torch.testing.assert_close(found[0], torch.cat(each).mean(0, keepdim=True))


def test_the_mix_starts_as_the_mean_and_is_elmos():
    mix, x = LayerMix(LAYERS), torch.randn(2, 4, LAYERS, SIZE)
    torch.testing.assert_close(mix(x), x.mean(-2))
    with torch.no_grad():
        mix.weight.copy_(torch.tensor([0.0, 1.0, 2.0]))
        mix.gamma.fill_(3.0)
    shares = torch.tensor([0.0, 1.0, 2.0]).exp() / torch.tensor([0.0, 1.0, 2.0]).exp().sum()
    torch.testing.assert_close(mix(x), 3 * (shares[:, None] * x).sum(-2))


def test_other_vectors_are_refused():
    part = ContextVectors(ContextShape(SIZE, LAYERS))
    with pytest.raises(ValueError, match=r"expected a Context with words of \[time, batch, 3, 5\], got None"):
        part(None)
    with pytest.raises(ValueError, match=r"got \['time', 'batch', 1, 5\]"):
        part(Context(torch.zeros(2, 2, 1, SIZE), torch.zeros(2, SIZE)))
    with pytest.raises(ValueError, match=r"context='bert' needs the shape .* pass context=ContextShape"):
        Classifier(9, 2, ClassifierConfig(context="bert"))


# ----------------------------------------------------------------------------------------- models

STEPS, BATCH = 4, 3
COMMON: dict[str, Any] = {"unit": "lrn", "embedding_size": 6, "hidden_size": 6, "num_layers": 1}
TOKENS = torch.randint(3, 9, (STEPS, BATCH), generator=torch.Generator().manual_seed(0))
SPELT = TOKENS[..., None].repeat(1, 1, 2)
LENGTHS = torch.tensor([4, 2, 3])

Call = Callable[[Any, Any], Any]


def passage(context: Any) -> Passage:
    return Passage(TOKENS, LENGTHS, characters=SPELT, context=context)


MODELS: dict[str, tuple[Callable[..., Any], Any, Call]] = {
    "classify": (
        lambda config, **how: Classifier(9, 2, config, **how),
        ClassifierConfig,
        lambda model, context: model(TOKENS, LENGTHS, None, context),
    ),
    "nli": (
        lambda config, **how: PairClassifier(9, 3, config, **how),
        lambda **options: PairConfig(heads=2, **options),
        lambda model, context: model(*[Text(TOKENS, None, context)] * 2, LENGTHS, LENGTHS),
    ),
    "tag": (
        lambda config, **how: Tagger(9, 3, config, **how),
        lambda **options: TaggerConfig(character_size=0, **options),
        lambda model, context: model(TOKENS, LENGTHS, None, context),
    ),
    "drqa": (
        lambda config, **how: DocumentReader(9, config, **how),
        ReaderConfig,
        lambda model, context: model(passage(context), passage(context)),
    ),
    "rnet": (
        lambda config, **how: RNet(9, config, characters=9, **how),
        lambda **options: ReaderConfig(form="rnet", **options),
        lambda model, context: model(passage(context), passage(context)),
    ),
    "recurrent": (
        lambda config, **how: make_translator(9, 9, config, **how),
        lambda embedding_size, **options: TranslatorConfig(heads=2, **options),
        lambda model, context: model(TOKENS, LENGTHS, TOKENS, LENGTHS, context),
    ),
    "transformer": (
        lambda config, **how: make_translator(9, 9, config, **how),
        lambda embedding_size, **options: TranslatorConfig(form="transformer", heads=2, **options),
        lambda model, context: model(TOKENS, LENGTHS, TOKENS, LENGTHS, context),
    ),
}  # fmt: skip


def numbers(found: Any) -> list[Tensor]:
    return [found] if isinstance(found, Tensor) else [each for each in found if isinstance(each, Tensor)]


def built(kind: str, **options: Any) -> tuple[nn.Module, Call]:
    make, config, call = MODELS[kind]
    model = make(config(**COMMON, context="bert", **options), context=ContextShape(SIZE, LAYERS)).double()
    return liven(model).eval(), call


@pytest.mark.parametrize("kind", MODELS)
def test_the_context_is_read_and_its_padding_is_not(kind: str):
    model, call = built(kind, context_layers="mix")
    words = torch.randn(STEPS, BATCH, LAYERS, SIZE, dtype=torch.float64, requires_grad=True)
    context = Context(words, torch.randn(BATCH, SIZE, dtype=torch.float64))
    real = (torch.arange(STEPS)[:, None] < LENGTHS)[..., None, None]
    found = numbers(call(model, context))
    torch.stack([each.masked_fill(each.isinf(), 0).square().sum() for each in found]).sum().backward()
    assert words.grad is not None
    # Every real word changes the result, in every layer; padding does not.
    assert (words.grad.abs().sum(-1, keepdim=True) > 0).equal(real.expand(-1, -1, LAYERS, 1))
    other = context._replace(words=words + torch.randn(SIZE).double() * ~real)
    for one, two in zip(found, numbers(call(model, other)), strict=True):
        torch.testing.assert_close(one, two)


def test_a_pair_reads_its_context_where_the_paper_does():
    """+BERT joins x, the input of the layers after the attention, and the input of the output layer."""
    with_, without = ({**COMMON, **each} for each in ({"context": "bert"}, {}))
    model = PairClassifier(9, 3, PairConfig(heads=2, **with_), context=ContextShape(SIZE)).double().eval()
    plain = PairClassifier(9, 3, PairConfig(heads=2, **without))
    more = {
        name: sizes
        for name, weight in model.named_parameters()
        if (sizes := weight.shape) != plain.get_parameter(name).shape
    }
    inputs = {name.rpartition(".cell")[0].split(".")[0] for name in more}
    assert {"layers", "after_premise", "after_hypothesis"} <= inputs | {name.split(".")[0] for name in more}
    assert {name.split(".")[0] for name in more} == {
        "layers", "matching", "after_premise", "after_hypothesis", "output",
    }  # fmt: skip
    pooled = torch.randn(BATCH, SIZE, dtype=torch.float64, requires_grad=True)
    context = Context(torch.randn(STEPS, BATCH, 1, SIZE, dtype=torch.float64), pooled)
    logits = model(*[Text(TOKENS, None, context)] * 2, LENGTHS, LENGTHS)
    (grad,) = torch.autograd.grad(logits[:, 0].sum(), pooled)
    torch.testing.assert_close(grad, model.output.weight[:1, -SIZE:].expand(BATCH, -1))


def test_the_released_pointer_never_sees_the_question():
    """The LRN authors' R-Net with ELMo starts from the last 2 hidden_size numbers of [question; ELMo]."""
    shape = ContextShape(2 * COMMON["hidden_size"] + 3)
    config = ReaderConfig(form="rnet", context="bert", **COMMON)
    for released in (True, False):
        chosen = ReaderConfig(**{**vars(config), "released_start": released})
        model = liven(RNet(9, chosen, characters=9, context=shape).double()).eval()
        words = torch.randn(STEPS, BATCH, 1, shape.size, dtype=torch.float64, requires_grad=True)
        context = Context(words, torch.randn(BATCH, shape.size, dtype=torch.float64))
        start = model.attend(
            passage(None)._replace(context=Context(words.detach(), context.pooled)), passage(context)
        ).start
        assert start.shape == (BATCH, 12 if released else 12 + shape.size)
        (grad,) = torch.autograd.grad(start.square().sum(), words)
        assert bool((grad[0, 0, 0, :3] == 0).all()) == released
        tokens = torch.autograd.grad(
            model.attend(passage(context), passage(context)).start.sum(),
            model.encoder.parameters(),
            allow_unused=True,
        )
        assert all(each is None or not each.any() for each in tokens) == released


def test_options_are_checked():
    with pytest.raises(ValueError, match="context_tuned=True trains an encoder; give its folder"):
        ClassifierConfig(context_tuned=True)
    with pytest.raises(ValueError, match="context_file is for the vectors of an encoder that is not tuned"):
        TaggerConfig(context="bert", context_tuned=True, context_file="x")
    with pytest.raises(ValueError, match="released_start is about the vectors of an encoder; give context"):
        ReaderConfig(form="rnet", released_start=True)
    with pytest.raises(ValueError, match="context_layers"):
        TranslatorConfig(context="bert", context_layers="first")
