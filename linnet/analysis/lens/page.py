"""The lens of a model, as one HTML file that needs no network and no server.

    lens = linnet.lens(model, vocabulary)
    lens.save("lens.html")
    lens                                     # in a notebook: the page itself

The model runs in the page by the JavaScript that `linnet.export_js` writes from its step.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from linnet.analysis.lens.bundle import as_expression, bundle, harmless, read
from linnet.analysis.lens.describe import CannotShow, describe, text_of
from linnet.analysis.lens.widget import widget
from linnet.base.files import write_atomically
from linnet.deploy.source.int8 import with_int8
from linnet.deploy.source.javascript import module_of
from linnet.deploy.step.build import program_of
from linnet.deploy.step.models import CannotExport

# Larger models are stored with weights of eight bits, unless the caller decides.
FEW_PARAMETERS = 300_000
TEXT = "A small bird, and what a voice."
# The height of the page in a notebook, in pixels.
FRAME_HEIGHT = 860


class Shown(NamedTuple):
    """A model in the page: the text of its module, and what the page has to know of it."""

    module: str
    info: dict[str, Any]

    def __repr__(self) -> str:
        return f"{self.info['name']}: {self.info['about']}"


@dataclass(frozen=True)
class Lens:
    """A page that shows what one model, or two side by side, compute while they read a text."""

    models: tuple[Shown, ...]
    text: str

    def __repr__(self) -> str:
        return f"Lens({'; '.join(map(repr, self.models))}), to be written by save(path)"

    @property
    def html(self) -> str:
        """The page."""
        infos = json.dumps([shown.info for shown in self.models], ensure_ascii=False)
        modules = ",\n".join(as_expression(shown.module) for shown in self.models)
        script = (
            f"{bundle('page')}"
            f"const infos = {infos};\n"
            f"const modules = [{modules}];\n"
            "const models = modules.map((module, i) => ({ module, info: infos[i] }));\n"
            f"const text = {json.dumps(self.text)};\n"
            "window.lens = new $page.Page(document.querySelector('.lens'), models, text);\n"
        )
        names = " and ".join(shown.info["name"] for shown in self.models)
        style, script = read("style.css"), harmless(script)
        parts = {
            "TITLE": html.escape(f"Lens: {names}"),
            "POLICY": policy(script, style),
            "STYLE": style,
            "SCRIPT": script,
        }
        # In one pass, because a name or a token may look like a placeholder.
        return re.sub(r"/\*([A-Z]+)\*/", lambda found: parts[found[1]], read("page.html"))

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the page to a file and return its path."""
        write_atomically(Path(path), self.html.encode())
        return Path(path)

    def beside(self, other: Lens) -> Lens:
        """Return a page with the models of both, side by side; the text is that of this one."""
        return Lens((*self.models, *other.models), self.text)

    def widget(self, height: int = FRAME_HEIGHT) -> Any:
        """Return the page as a notebook widget: its `text` is what is typed, and can be set from Python."""
        return widget(self.html, self.text, height)

    def _repr_html_(self) -> str:
        frame = f'style="width: 100%; height: {FRAME_HEIGHT}px; border: 0"'
        return f'<iframe title="Linnet lens" {frame} srcdoc="{html.escape(self.html)}"></iframe>'


def policy(script: str, style: str) -> str:
    """The page's Content-Security-Policy: it runs this script, with this style, and reaches no address."""
    hashes = [base64.b64encode(sha256(text.encode()).digest()).decode() for text in (script, style)]
    return (
        f"default-src 'none'; script-src 'sha256-{hashes[0]}'; style-src 'sha256-{hashes[1]}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def lens(
    model: nn.Module,
    vocabulary: Any,
    *,
    text: str = TEXT,
    name: str | None = None,
    about: str = "",
    labels: Sequence[str] | None = None,
    counts: Sequence[int] | None = None,
    passages: Sequence[str] = (),
    int8: bool | None = None,
) -> Lens:
    """Return the lens of a model that reads tokens in one direction.

    vocabulary   a Vocabulary of linnet.data, or a list of the tokens: characters, or words between spaces
    text         what the model reads at first
    name         of the model in the page (its unit)
    about        a few words about it (its size)
    labels       what the outputs of a classifier or a tagger mean
    counts       how often each token occurs in the training text, for the view of the pace
    passages     texts among which the page searches for similar states (none: the typed text itself)
    int8         store weights of eight bits: a quarter of the size (for more than 300,000 parameters)
    """
    spec = vocabulary if isinstance(vocabulary, dict) else text_of(vocabulary)
    try:
        module = module_for(model, int8)
    except CannotExport as reason:
        raise CannotShow(f"the lens runs a model step by step in the page: {reason}") from None
    info = describe(
        model, spec, name=name or "", about=about, labels=labels, counts=counts, passages=passages
    )
    info["name"] = name or info["unit"]
    return Lens((Shown(module, info),), text)


def module_for(model: nn.Module, int8: bool | None) -> str:
    """Return the text of the module that runs a model; its weights are rounded, its arithmetic is not."""
    program = program_of(model, keep_values=True)
    if int8 or (int8 is None and program.weights > FEW_PARAMETERS):
        program = with_int8(program)
    return module_of(program, None, rounds_inputs=False)
