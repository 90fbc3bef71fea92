"""What a step reads besides its arguments: a change is seen, or the unit is not fused."""

from __future__ import annotations

import enum
import gc
import types
import weakref
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import user_units
from fused_runs import draw, over, plans_of
from torch import Tensor, nn

import linnet
from linnet.run import plan_cache

SCALE = 0.5
TABLE = {"scale": 0.5}


def by_table(x: Tensor) -> Tensor:
    return x * TABLE["scale"]


class Mode(enum.Enum):
    HALF = 0.5
    FULL = 1.0


@dataclass(frozen=True)
class Frozen:
    scale: float


@dataclass
class Changing:
    scale: float


class Anything:
    def __init__(self, scale: float):
        self.scale = scale

    def __call__(self, x: Tensor) -> Tensor:
        return x * self.scale


def scaled_by(factor: float):
    return lambda x: x * factor


class SettingCell(user_units.OddCell):
    """h = tanh(a + w h) b, where `weigh` says what w is."""

    recurrence = {}

    def step(self, a, b, h):
        return super().step(a, b, self.weigh(h))

    def weigh(self, h: Tensor) -> Tensor:
        raise NotImplementedError


def unit(weigh: Any, setting: Any = None) -> Any:
    """A module whose only cell reads `setting` in `weigh`."""
    # There from the start, so that it is part of the first trace.
    more = lambda self, size, where: setattr(self, "setting", setting)  # noqa: E731
    cell = type("ReadsCell", (SettingCell,), {"weigh": weigh, "more": more})
    module = type("Reads", (linnet.Recurrent,), {"__doc__": "A unit."}, cell=cell)
    return module(4, 6, dtype=torch.double)


def fuses(rnn: Any) -> bool:
    return not isinstance(plans_of(rnn, rnn.training), str)


def check(rnn: Any, change: Any) -> None:
    """Before and after a change, by whichever way it runs: what the reference computes."""
    x, seen = draw(5, 2, 4, seed=5), []
    cell = rnn.directions[0].cell
    for act in (lambda: None, change):
        act()
        y, (one, _) = rnn(x)[0], cell.run_step(x[0])
        with linnet.backend("reference"):
            torch.testing.assert_close(y, rnn(x)[0], rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(one, cell.run_step(x[0])[0], rtol=1e-12, atol=1e-12)
        seen.append(y)
    assert not torch.allclose(*seen)


def first(self, h):
    return h * self.setting[0]


def named(self, h):
    return h * self.setting["scale"]


def scale(self, h):
    return h * self.setting.scale


def called(self, h):
    return self.setting(h)


def plain(self, h):
    return h * self.setting


def member(self, h):
    return h * self.setting.value


def biggest(self, h):
    return h * max(self.setting)


def put(name: str, value: Any) -> Any:
    return lambda rnn: setattr(rnn.directions[0].cell, name, value)


def inside(act: Any) -> Any:
    return lambda rnn: act(rnn.directions[0].cell.setting)


# What the setting is at first, who reads it, and how it changes.
SEEN = {
    "a number": (0.5, plain, put("setting", 0.7)),
    "a NumPy scalar": (np.float32(0.5), plain, put("setting", np.float32(0.7))),
    "a NumPy integer": (np.int64(2), plain, put("setting", np.int64(3))),
    "a list that is changed": ([0.5], first, inside(lambda s: s.__setitem__(0, 0.7))),
    "a list that is exchanged": ([0.5], first, put("setting", [0.7])),
    "a list in a list": (
        [[0.5]],
        lambda self, h: h * self.setting[0][0],
        inside(lambda s: s[0].append(s[0].pop() + 0.2)),
    ),
    "a tuple with a list": (
        ([0.5],),
        lambda self, h: h * self.setting[0][0],
        inside(lambda s: s[0].__setitem__(0, 0.7)),
    ),
    "a dict that is changed": ({"scale": 0.5}, named, inside(lambda s: s.update(scale=0.7))),
    "a set": ({0.5}, biggest, inside(lambda s: s.add(0.7))),
    "a small array": (
        np.array([0.5]),
        lambda self, h: h * float(self.setting[0]),
        inside(lambda s: s.fill(0.7)),
    ),
    "an enum": (Mode.HALF, member, put("setting", Mode.FULL)),
    "a frozen dataclass": (Frozen(0.5), scale, put("setting", Frozen(0.7))),
    "a dataclass": (Changing(0.5), scale, inside(lambda s: setattr(s, "scale", 0.7))),
    "a namespace": (types.SimpleNamespace(scale=0.5), scale, inside(lambda s: setattr(s, "scale", 0.7))),
    "a function": (torch.sin, called, put("setting", torch.cos)),
    "a partial": (partial(torch.mul, other=0.5), called, put("setting", partial(torch.mul, other=0.7))),
    "a closure": (scaled_by(0.5), called, inside(lambda s: setattr(s.__closure__[0], "cell_contents", 0.7))),
    "a module of torch": (nn.LeakyReLU(0.5), called, inside(lambda s: setattr(s, "negative_slope", 0.9))),
    "modules in a module": (
        nn.Sequential(nn.LeakyReLU(0.5), nn.Tanh()),
        called,
        inside(lambda s: setattr(s[0], "negative_slope", 0.9)),
    ),
    "an attribute of the class": (
        None,
        lambda self, h: h * self.factor,
        lambda rnn: setattr(type(rnn.first_cell), "factor", 0.7),
    ),
    "an attribute in place of that of the class": (None, lambda self, h: h * self.factor, put("factor", 0.7)),
    "a method that is exchanged": (None, lambda self, h: h, put("weigh", lambda h: 0.5 * h)),
    "a global variable": (None, lambda self, h: h * SCALE, lambda rnn: globals().update(SCALE=SCALE + 0.25)),
    "a global table, in a function": (
        None,
        lambda self, h: by_table(h),
        lambda rnn: TABLE.update(scale=TABLE["scale"] + 0.25),
    ),
    "a variable of a module": (
        None,
        lambda self, h: h * user_units.FACTOR,
        lambda rnn: setattr(user_units, "FACTOR", user_units.FACTOR + 0.25),
    ),
}
SettingCell.factor = 0.5  # type: ignore[attr-defined]


@over("name", list(SEEN))
def test_a_step_that_reads_it_fuses_and_sees_it_change(name: str):
    setting, weigh, change = SEEN[name]
    rnn = unit(weigh, setting)
    assert fuses(rnn)
    check(rnn, lambda: change(rnn))
    assert fuses(rnn)


# Of these nobody could say whether they have changed.
UNSEEN = {
    "an object": (Anything(0.5), scale, inside(lambda s: setattr(s, "scale", 0.7))),
    "an object that is called": (Anything(0.5), called, inside(lambda s: setattr(s, "scale", 0.7))),
    "an object in a list": (
        [Anything(0.5)],
        lambda self, h: h * self.setting[0].scale,
        inside(lambda s: setattr(s[0], "scale", 0.7)),
    ),
    "a bound method": (Anything(0.5).__call__, called, inside(lambda s: setattr(s.__self__, "scale", 0.7))),
    "a large array": (
        np.full(5000, 0.5),
        lambda self, h: h * float(self.setting[0]),
        inside(lambda s: s.fill(0.7)),
    ),
}


@over("name", list(UNSEEN))
def test_a_step_that_reads_what_cannot_be_seen_runs_by_the_loop_and_says_why(name: str):
    setting, weigh, change = UNSEEN[name]
    rnn = unit(weigh, setting)
    reason = plans_of(rnn, rnn.training)
    assert isinstance(reason, str)
    assert "its step reads self.setting, which holds a" in reason
    check(rnn, lambda: change(rnn))


def test_what_the_step_does_not_read_does_not_keep_it_from_a_kernel():
    rnn = unit(lambda self, h: 0.5 * h, Anything(0.5))
    assert fuses(rnn)
    plans = plans_of(rnn)
    rnn.directions[0].cell.setting = Anything(0.7)
    assert plans_of(rnn)[0].plan is plans[0].plan


def test_a_setting_that_decides_what_else_is_read_is_followed():
    def weigh(self, h):
        return h * (self.one if self.setting else self.other)

    rnn = unit(weigh, True)
    cell, x = rnn.directions[0].cell, draw(5, 2, 4, seed=5)
    cell.one, cell.other = 0.3, 0.6
    for name, value in (("one", 0.4), ("setting", False), ("other", 0.7), ("setting", True), ("one", 0.2)):
        setattr(cell, name, value)
        with linnet.backend("reference"):
            expected = rnn(x)[0]
        torch.testing.assert_close(rnn(x)[0], expected, rtol=1e-12, atol=1e-12)


def test_a_cell_keeps_a_bounded_number_of_plans():
    rnn = unit(plain, 0.5)
    direction, x = rnn.directions[0], draw(2, 2, 4, seed=5)
    old = weakref.ref(plans_of(rnn, rnn.training)[0].plan.traced)
    for i in range(2 * plan_cache.MOST_PLANS):
        direction.cell.setting = 0.01 * i + 0.003
        rnn(x)
    assert len(direction.plan_cache.plans) <= plan_cache.MOST_PLANS
    gc.collect()
    assert old() is None


# ------------------------------------------------------------------------------ names that kernels use


@over("name", ["x", "y", "dy", "zeros", "numbers", "v0", "v1", "mask", "joint", "h_"])
def test_a_part_may_have_any_name(name: str):
    """Kernels have operands of their own; one of the same name was read in place of the other."""
    space: dict[str, Any] = {}
    exec(
        f"def step(self, {name}, b, h):\n    return ODD.step(self, {name}, b, h)",
        {"ODD": user_units.OddCell},
        space,
    )
    cell = type("NamedCell", (user_units.OddCell,), {"parts": (name, "b"), **space})
    rnn: Any = type("Named", (linnet.Recurrent,), {"__doc__": "A unit."}, cell=cell)(
        4, 37, dtype=torch.double
    )
    assert fuses(rnn)
    x = draw(7, 3, 4, seed=5)
    ours = user_units.run(rnn, x)
    with linnet.backend("reference"):
        torch.testing.assert_close(ours, user_units.run(rnn, x), rtol=1e-11, atol=1e-11)
    with torch.no_grad():
        torch.testing.assert_close(rnn(x)[0], ours[0], rtol=1e-11, atol=1e-11)


class TwiceCell(user_units.OddCell):
    def more(self, size, where):
        self.a = nn.Parameter(torch.empty(size, **where))

    def step(self, a, b, h):
        return super().step(a * self.a, b, h)


class Twice(linnet.Recurrent, cell=TwiceCell):
    """A part and a parameter of one name."""


def test_a_part_and_a_parameter_of_one_name_are_told_apart():
    rnn = Twice(4, 6, dtype=torch.double)
    (fusible,) = plans_of(rnn)
    assert set(fusible.plan.traced.inputs).isdisjoint(fusible.plan.traced.weights)
    x = draw(5, 2, 4, seed=5)
    ours = user_units.run(rnn, x)
    with linnet.backend("reference"):
        torch.testing.assert_close(ours, user_units.run(rnn, x))


@over("whole", [False, True])
def test_a_change_inside_a_setting_reaches_native_single_steps(whole: bool):
    """The first call is a single step, which makes the plans of a cell or of a layer."""
    rnn = unit(named, {"scale": 0.5}).eval()
    cell, x, h = rnn.directions[0].cell, draw(3, 4, seed=5), draw(3, 6, seed=6)
    step = (lambda: rnn(x[None], h[None])[0][0]) if whole else (lambda: cell(x, h)[0])
    with torch.no_grad():
        before = [step() for _ in range(3)][-1]
        cell.setting["scale"] = 2.0
        after = step()
        with linnet.backend("reference"):
            torch.testing.assert_close(after, step(), rtol=1e-12, atol=1e-12)
    assert not torch.allclose(before, after)


def test_the_key_of_our_own_units_names_few_settings():
    """It is made at each call: what a step does not read is not part of it."""
    for kind in linnet.UNITS.values():
        rnn = kind(8, 8)
        assert plans_of(rnn)
        names = rnn.directions[0].plan_cache.settings.names  # type: ignore[attr-defined]
        assert len(names) <= MANY_SETTINGS.get(kind, 8), names


# Units whose steps read more parameters, methods and options than those of others.
MANY_SETTINGS: dict[Any, int] = {linnet.NRU: 13, linnet.FastGRNN: 10, linnet.CfC: 13, linnet.LTC: 21}
