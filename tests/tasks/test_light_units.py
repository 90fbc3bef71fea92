"""What a user trains who chooses no unit: a light one."""

from __future__ import annotations

import pytest

from linnet.runs.config import RunConfig
from linnet.tasks import TASKS
from linnet.tasks.language import BY_LETTERS

LIGHT = ("sru", "lrn", "ran", "scrn", "nru", "lem", "fastgrnn")
"""The units of the five papers, and those whose papers the tasks memory.fitzhugh and memory.rows are from."""


@pytest.mark.parametrize("name", [name for name in TASKS if name != "toy"])
def test_the_default_unit_is_light(name: str):
    assert RunConfig(task=name).model.unit in LIGHT
    assert BY_LETTERS.get("unit", "sru") in LIGHT
