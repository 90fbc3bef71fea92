"""A whole task in one file: name the largest number of a short sequence. LINNET_TASKS=tests/toy_task.py."""

import random
from dataclasses import dataclass

from torch.nn.functional import cross_entropy

from linnet.base.settings import Checked, option
from linnet.data import IGNORE, BatchPlan, Example, collate, epoch_generator, padded_batches
from linnet.models.classifier import Classifier, ClassifierConfig
from linnet.tasks import TASKS
from linnet.tasks.base import Comparison, Task
from linnet.tasks.results import Metric, Metrics, StepResult


@dataclass(frozen=True)
class LargestData(Checked):
    batch: int = option(8, "sequences in a batch", least=1)


class Accuracy(Metrics):
    right = 0

    def update(self, result):
        super().update(result)
        self.right += result.outputs

    def compute(self):
        return {**super().compute(), "accuracy": self.right / max(self.count, 1)}


class Largest(Task):
    name, about = "largest", "name the largest number of a short sequence"
    Data, Model, selects, metrics = LargestData, ClassifierConfig, Metric("accuracy", higher=True), Accuracy
    defaults = {"unit": "lrn", "hidden_size": 8, "embedding_size": 8, "num_layers": 1, "optimiser": "adam"}
    comparison = Comparison(units=("lrn", "gru"), budget=600, settings={"epochs": 2})

    def build(self):
        return Classifier(5, 5, self.model)

    def batches(self, split, epoch=0, first=0):
        draw = random.Random(split)
        rows = [draw.choices(range(5), k=draw.randint(1, 7)) for _ in range(60)]
        examples, plan = [Example(row, max(row)) for row in rows], BatchPlan(self.data.batch)
        return padded_batches(examples, plan, epoch_generator(self.seed, epoch) if epoch else None, first)

    def step(self, model, batch, carry):
        logits = model(batch.inputs.steps, batch.inputs.lengths)
        total = cross_entropy(logits, batch.labels, reduction="sum", ignore_index=IGNORE)
        count, right = int((batch.labels != IGNORE).sum()), int((logits.argmax(-1) == batch.labels).sum())
        return StepResult(total / max(count, 1), total.detach(), count, batch.tokens, outputs=right)

    def predict(self, model, raw):
        batch = collate([Example([int(word) for word in text.split()]) for text in raw]).inputs
        return model(batch.steps, batch.lengths).argmax(-1).tolist()


TASKS["largest"] = Largest
