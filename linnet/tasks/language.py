"""Language modelling: predict each token of a text from all before it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import torch
from torch import nn

from linnet.base.options import check_size, choose
from linnet.data.batches import TAILS, Window, epoch_generator, varied_windows, window_count, windows
from linnet.data.corpora import Corpus
from linnet.models.language import LanguageModel, LanguageModelConfig
from linnet.tasks.task import StepResult, evaluating

SPLITS = ("train", "valid", "test")


class LanguageTask:
    """A corpus and a model of it.

    batch         columns of text that are read side by side in training
    length        steps of a window
    varied        windows of varied length around `length`, drawn anew in each epoch (AWD-LSTM)
    delta         varied: how much longer than `length` a window may be
    tail          what becomes of tokens that do not divide: "keep", "trim" or "drop" (see linnet.data)
    eval_batch    the same three for evaluation. By default every token counts; the RAN and SCRN authors
    eval_length   validate with the batch of training and eval_tail="drop"
    eval_tail
    carry         whether the state goes on from window to window; else each begins from zeros
    seed          of the varied lengths
    """

    name = "language"

    def __init__(
        self,
        corpus: Corpus,
        config: LanguageModelConfig,
        *,
        batch: int = 20,
        length: int = 35,
        varied: bool = False,
        delta: int = 40,
        tail: str | None = None,
        eval_batch: int = 10,
        eval_length: int | None = None,
        eval_tail: str = "keep",
        carry: bool = True,
        seed: int = 1,
    ):
        for name, size in (("batch", batch), ("length", length), ("eval_batch", eval_batch)):
            check_size(name, size)
        tail = tail or ("trim" if varied else "drop")
        choose("tail", tail, TAILS)
        choose("eval_tail", eval_tail, TAILS)
        self.corpus, self.config, self.seed = corpus, config, seed
        self.batch, self.length, self.tail = batch, length, tail
        self.varied, self.delta, self.carry = varied, delta, carry
        self.eval_batch, self.eval_length, self.eval_tail = eval_batch, eval_length or length, eval_tail

    def build(self) -> LanguageModel:
        return LanguageModel(len(self.corpus.vocabulary), self.config)

    # ----------------------------------------------------------------------------------- training

    def training(self, epoch: int, first: int = 0, rank: int = 0, world: int = 1) -> Iterator[Window]:
        of_all = self.windows_of(epoch, first)
        return of_all if world == 1 else (window.columns(rank, world) for window in of_all)

    def windows_of(self, epoch: int, first: int) -> Iterator[Window]:
        tokens, shape = self.corpus.train, (self.batch, self.length)
        if not self.varied:
            return windows(tokens, *shape, tail=self.tail, first=first)
        drawn = {"generator": epoch_generator(self.seed, epoch), "delta": self.delta}
        return varied_windows(tokens, *shape, tail=self.tail, first=first, **drawn)  # type: ignore[arg-type]

    def batches_per_epoch(self, epoch: int) -> int:
        if self.varied:
            return sum(1 for _ in self.windows_of(epoch, 0))
        return window_count(self.corpus.train, self.batch, self.length, tail=self.tail)

    def step(self, model: nn.Module, batch: Window, carry: Any) -> StepResult:
        parts = model.loss(batch.inputs, batch.targets, carry if self.carry else None)  # type: ignore[operator]
        tokens, penalties = batch.inputs.numel(), dict(parts.penalties)
        return StepResult(parts.objective, parts.nll, parts.count, tokens, penalties, parts.state)

    # --------------------------------------------------------------------------------- evaluation

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str) -> dict[str, float]:
        """loss: the mean of -log p in nats; perplexity, its exponential; bpc, the same in bits a token."""
        choose("split", split, SPLITS)
        with evaluating(model):
            nll, count = self.total(model, split)
        loss = nll / count
        # Where exp has no number for it, a perplexity is no figure but the verdict is clear.
        perplexity = math.exp(loss) if loss < 700 else math.inf
        return {"loss": loss, "perplexity": perplexity, "bpc": loss / math.log(2), "tokens": float(count)}

    def total(self, model: nn.Module, split: str) -> tuple[float, int]:
        tokens = getattr(self.corpus, split)
        device = next(model.parameters()).device
        nll, count, state = 0.0, 0, None
        for window in windows(tokens, self.eval_batch, self.eval_length, tail=self.eval_tail):
            given = window.inputs.to(device), window.targets.to(device)
            parts = model.loss(*given, state)  # type: ignore[operator]
            nll, count = nll + float(parts.nll), count + parts.count
            state = parts.state if self.carry else None
        return nll, count

    def describe(self) -> dict[str, Any]:
        vocabulary = self.corpus.vocabulary
        return {
            "task": self.name,
            "corpus": self.corpus.name,
            "level": self.corpus.level,
            "vocabulary": vocabulary.fingerprint,
            "vocabulary_size": len(vocabulary),
            "model": asdict(self.config),
        }
