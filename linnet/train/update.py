"""How an update is made: gradients of some batches, clipping, the optimiser, the average of weights."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

from torch import Tensor, nn

from linnet.runs.errors import NotFinite
from linnet.tasks.results import StepResult
from linnet.train import optimisers
from linnet.train.context import Context
from linnet.train.fabric import summed
from linnet.train.schedules import Moment, factor


class StepInput:
    """The inputs of a step as one opaque object: a wrapper of a model would convert tensors of a tuple."""

    def __init__(self, batch: Any, carry: Any):
        self.batch, self.carry = batch, carry


class StepOutput:
    """What a step returns besides its objective; opaque for the same reason."""

    def __init__(self, result: StepResult, sequences: int):
        self.total, self.count, self.tokens = float(result.total), int(result.count), int(result.tokens)
        self.extra, self.carry = result.extra, result.carry
        self.length = self.count / sequences  # counted targets of each sequence


class Stepper(nn.Module):
    """A task and its model as one module: what wraps it, DDP or autocast, sees one forward."""

    def __init__(self, task: Any, model: nn.Module):
        super().__init__()
        self.task, self.model = task, model

    def forward(self, given: StepInput) -> tuple[Tensor, StepOutput]:
        result = self.task.step(self.model, given.batch, given.carry)
        return result.objective, StepOutput(result, len(given.batch))


class Update(NamedTuple):
    """The figures of an update, for the progress bar."""

    loss: float
    rate: float


class Updater:
    """A model and its optimiser.

    carry   the recurrent state of this process's sequences, for the next batch
    sums    of the loss and further numbers since the last row of training
    now     the clock, in seconds, by which the time of updates is counted
    """

    def __init__(self, context: Context):
        self.context, self.config = context, context.config
        self.model = context.task.build()
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.stepper = context.fabric.setup_module(Stepper(context.task, self.model))
        self.optimiser: Any = None
        self.optimiser_name = ""
        self.choose_optimiser()
        ema = self.config.optimiser
        self.average = optimisers.Average(self.parameters, ema.ema, ema.ema_warmup) if ema.ema else None
        self.carry: Any = None
        self.sums: dict[str, float] = {}
        self.now: Callable[[], float] = time.perf_counter

    def choose_optimiser(self) -> None:
        """Use the optimiser that the validations so far ask for; another one starts without a state."""
        wanted = optimisers.current(self.config.optimiser, self.context.here.history)
        if wanted != self.optimiser_name:
            settings = self.config.optimiser
            groups = optimisers.grouped(self.parameters, self.context.task.rates(self.model), settings.lr)
            made = optimisers.make(wanted, settings, groups)
            self.optimiser_name, self.optimiser = wanted, self.context.fabric.setup_optimizers(made)

    def model_size(self) -> int:
        return sum(p.numel() for p in self.model.parameters())

    def averaged(self) -> Any:
        """Within this, the model has the averaged weights, where the settings ask for an average."""
        weights = optimisers.averages(self.optimiser, self.average, self.parameters)
        return optimisers.standing_in(self.parameters, weights)

    # ------------------------------------------------------------------------------- an update

    def update(self, batches: list[Any]) -> Update:
        """Make one step of the optimiser with the mean of the gradients of some batches."""
        started, here = self.now(), self.context.here
        steps = [self.backward(batch, len(batches), last=batch is batches[-1]) for batch in batches]
        norm = self.clip()
        loss = sum(step.total for step in steps) / max(sum(step.count for step in steps), 1)
        rate = self.rate(sum(step.length for step in steps) / len(steps))
        self.refuse_nonsense(loss, norm)
        optimisers.set_rate(self.optimiser, rate)
        self.optimiser.step()
        self.optimiser.zero_grad()
        here.step += 1
        if self.average:
            self.average.update(here.step)
        here.batch += len(batches)
        here.tokens += sum(step.tokens for step in steps)
        here.seconds += self.now() - started
        self.sums |= {"lr": rate, "gradient_norm": norm}
        return Update(loss, rate)

    def backward(self, batch: Any, size: int, last: bool) -> StepOutput:
        """Add the gradient of a batch, divided by `size`."""
        fabric, shared = self.context.fabric, self.context.fabric.world_size > 1
        if shared:
            batch = batch.columns(fabric.global_rank, fabric.world_size)
        given = StepInput(batch.to(fabric.device), self.carry)
        with fabric.no_backward_sync(self.stepper, enabled=not last) if shared else nullcontext():
            objective, output = self.stepper(given)
            self.carry = output.carry
            over = output.length if self.config.optimiser.loss_over == "sequences" else 1.0
            fabric.backward(objective * (over * self.weight(output) / size))
        for name, value in {"nll": output.total, "count": output.count, **output.extra}.items():
            self.sums[name] = self.sums.get(name, 0) + float(value)
        self.sums["batches"] = self.sums.get("batches", 0) + 1
        return output

    def weight(self, output: StepOutput) -> float:
        """Return the weight of this process's mean, such that the mean of all is that of one process."""
        fabric = self.context.fabric
        if fabric.world_size == 1:
            return 1.0
        total, tokens = summed(fabric, [output.count, output.tokens])
        output.tokens = int(tokens)
        return output.count * fabric.world_size / max(total, 1.0)

    def clip(self) -> float:
        """Clip the gradient; return its norm before that."""
        self.context.fabric.strategy.precision.unscale_gradients(self.optimiser.optimizer)
        norm = optimisers.gradient_norm(self.parameters)
        if self.config.optimiser.clip:
            optimisers.clip(self.parameters, norm, self.config.optimiser)
        return float(norm)

    def rate(self, length: float) -> float:
        """Return the learning rate of the next update, whose windows have `length` time steps."""
        settings, here = self.config.schedule, self.context.here
        moment = Moment(
            here.epoch, here.step + 1, here.history, self.context.total_steps, self.context.share_spent
        )
        rate = self.config.optimiser.lr * factor(settings, moment)
        return rate * length / self.config.data.length if settings.scale_by_length else rate

    def refuse_nonsense(self, loss: float, norm: float) -> None:
        # In 16 bits a gradient may overflow; the scaler of gradients deals with that.
        if math.isfinite(loss) and (math.isfinite(norm) or self.config.loop.precision == "16-mixed"):
            return
        here = self.context.here
        raise NotFinite(
            f"the loss is {loss:g} and the norm of the gradient {norm:g} at step {here.step + 1} "
            f"(epoch {here.epoch}, batch {here.batch + 1}, learning rate {self.rate(1.0):g}). "
            "The weights were not changed"
        )

    # ------------------------------------------------------------------------------- its states

    def states(self) -> dict[str, Any]:
        """Return what the next update depends on and what is the same in all processes."""
        shadows = self.average.shadows if self.average else None
        # The state of the scaler of 16-bit gradients; empty in other precisions.
        scaler = self.context.fabric.strategy.precision.state_dict()
        return {"optimiser": self.optimiser.state_dict(), "average": shadows, "scaler": scaler}

    def load_states(self, states: dict[str, Any]) -> None:
        self.optimiser.load_state_dict(states["optimiser"])
        self.context.fabric.strategy.precision.load_state_dict(states["scaler"])
        if self.average:
            self.average.load(states["average"])

    def take_sums(self) -> dict[str, float]:
        """Return the numbers of a row of training, over all processes, and start the next row."""
        sums, self.sums = self.sums, {}
        lr, norm = sums.pop("lr"), sums.pop("gradient_norm")
        names = sorted(sums)  # the same order in all processes
        totals = dict(zip(names, summed(self.context.fabric, [sums[name] for name in names]), strict=True))
        sums = {name: totals[name] for name in sums}
        total, count, batches = (sums.pop(name) for name in ("nll", "count", "batches"))
        means = {name: value / batches for name, value in sums.items()}
        return {"loss": total / max(count, 1.0), "lr": lr, "gradient_norm": norm, **means}
