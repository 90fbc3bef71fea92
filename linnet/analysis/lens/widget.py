"""The lens as a notebook widget, whose text can be read and set from Python. It needs anywidget."""

from __future__ import annotations

from typing import Any

from linnet.analysis.lens.bundle import read
from linnet.base.project import advice


def widget(page: str, text: str, height: int) -> Any:
    """Return a widget that shows a page. Its `text` is what is typed, `selected` the number of the word."""
    try:
        import anywidget
        import traitlets
    except ImportError as error:
        raise ImportError(f"a widget needs the package anywidget: {advice('notebook')}") from error

    class LensWidget(anywidget.AnyWidget):
        _esm = read("widget.js")
        page = traitlets.Unicode().tag(sync=True)
        text = traitlets.Unicode().tag(sync=True)
        selected = traitlets.Int(0).tag(sync=True)
        height = traitlets.Int().tag(sync=True)

    return LensWidget(page=page, text=text, height=height)
