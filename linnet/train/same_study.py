"""What the processes of a study have in common: settings, data and versions.

Otherwise its runs would differ in more than what was drawn.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from linnet.base.machine import installed_version
from linnet.runs.config import RunConfig, changeable, options
from linnet.runs.errors import Mismatch
from linnet.train.own_files import digests

PACKAGES = ("linnet-rnn", "torch")
OWN = ("data_dir", "device", "threads", "start_from", "context_file")
"""Settings that may differ between machines."""


def refuse_other(study: Any, config: RunConfig, ranges: Iterable[str], folder: Path) -> None:
    """Raise if the study was begun with something else; the first process says with what."""
    here = json.loads(json.dumps(common(config, ranges)))
    there = study.user_attrs.get("common")
    if there is None:
        study.set_user_attr("common", here)
        return
    for name, value in here.items():
        if name in there and there[name] != value:
            raise Mismatch(
                f"the study in {folder} was begun with {name} {there[name]!r}, and the machine "
                f"{socket.gethostname()} has {value!r}: its runs could not be compared. Use the same, or "
                "another --run-dir"
            )


def common(config: RunConfig, ranges: Iterable[str]) -> dict[str, Any]:
    """Return what must be equal, by name; of a file that the settings name, its digest."""
    drawn = {each for names in ranges for each in names.split("+")}
    free = {*drawn, *changeable(config), *OWN}
    named = digests(config.data)
    free |= named.keys()  # on each machine, a file may be in another folder
    parts = [(each.name, getattr(getattr(config, part), each.name)) for part, each, _ in options(config.task)]
    files = {name: code for name, code in named.items() if Path(getattr(config.data, name)).exists()}
    return {
        "task": config.task,
        **{name: value for name, value in parts if name not in free},
        **{f"the contents of --{name.replace('_', '-')}": code for name, code in files.items()},
        **versions(),
    }


def versions() -> dict[str, str]:
    """Return the versions on which results depend. A checkout has the number of its next release."""
    return {name: installed_version(name) for name in PACKAGES}
