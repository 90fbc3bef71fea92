"""The colour and line style of each unit: the same in every figure, on a light and on a dark page.

The six units of the default comparison have colours that differ clearly in normal vision and in all three
kinds of colour blindness, and six line styles, so that curves can also be told apart without colours.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from linnet.analysis.runs import Group

LIGHT_PAGE, DARK_PAGE = "#FFFFFF", "#1B1B1B"


class Shade(NamedTuple):
    """A colour on a light page, which is also the one in PNG files, and on a dark page."""

    light: str
    dark: str

    @property
    def variable(self) -> str:
        """The CSS variable of a report that has this colour."""
        return f"--c{self.light[1:].lower()}"


class Look(NamedTuple):
    color: Any
    linestyle: Any


INK = Shade("#222222", "#E4E4E4")
FAINT = Shade("#6A6A6A", "#A0A0A0")
GRID = Shade("#D8D8D8", "#3A3A3A")
BLUE, ORANGE, TEAL = Shade("#1F5FBF", "#4C8BF5"), Shade("#E06A00", "#F58A1F"), Shade("#16A085", "#0FB39B")
MAGENTA, BROWN = Shade("#9E1F7A", "#D14BAA"), Shade("#6B3E00", "#A67C45")
SKY, OLIVE = Shade("#6594E6", "#B4CDFF"), Shade("#8C9400", "#D3E34F")
SHADES = (INK, FAINT, GRID, BLUE, ORANGE, TEAL, MAGENTA, BROWN, SKY, OLIVE)

SOLID, DASHED, DOTTED, DASH_DOT = "-", "--", ":", "-."
LONG, DOTS, PAIRS = (0, (8, 2)), (0, (4, 1, 1, 1, 1, 1)), (0, (3, 1, 3, 3))
SPARSE, SHORT = (0, (1, 3)), (0, (2, 1))

LOOKS = {
    **{"lstm": (INK, SOLID), "lstm-peephole": (INK, DOTTED), "lstm-chrono": (INK, DASHED)},
    **{"nn.LSTM": (FAINT, DASHED)},
    **{"rnn": (FAINT, SOLID), "rnn-orth": (FAINT, DASHED), "rnn-id": (FAINT, DOTTED)},
    **{"sru": (BLUE, DASHED), "qrnn": (BLUE, DOTTED), "atr": (BLUE, LONG)},
    **{"lrn": (ORANGE, DASH_DOT), "olrn": (ORANGE, SOLID), "glrn": (ORANGE, DOTTED), "elrn": (ORANGE, LONG)},
    **{"ran": (TEAL, DOTTED), "goru": (TEAL, DASHED), "eurnn": (TEAL, SOLID)},
    **{"scrn": (MAGENTA, LONG), "statisticalru": (MAGENTA, SOLID)},
    **{"nru": (BROWN, DOTS)},
    **{"gru": (OLIVE, SOLID), "gru-before": (OLIVE, DASHED)},
    **{"janet": (SKY, SOLID), "janet-chrono": (SKY, DASH_DOT)},
    **{"mingru": (SKY, DASHED), "minlstm": (SKY, DOTTED), "mgu": (OLIVE, DOTTED)},
    **{"indrnn": (FAINT, LONG), "minimalrnn": (BROWN, SOLID), "sgu": (BROWN, DASHED)},
    **{"rglru": (BROWN, LONG), "slstm": (OLIVE, LONG), "hgrn": (SKY, LONG)},
    **{"lru": (BLUE, SOLID), "linoss": (BLUE, DASH_DOT), "unicornn": (MAGENTA, DASHED)},
    **{"cornn": (MAGENTA, DOTTED), "lem": (MAGENTA, DASH_DOT), "fastrnn": (TEAL, LONG)},
    **{"fastgrnn": (TEAL, DASH_DOT), "cfc": (ORANGE, DASHED), "ltc": (ORANGE, DOTS)},
    **{"ligru": (OLIVE, DASH_DOT)},
}
MORE_STYLES = (PAIRS, SPARSE, SHORT)  # for a second group of the same unit, and for units of your own
# For groups that are all of one unit: the colour need not tell units apart.
ONE_UNIT = tuple(LOOKS[name] for name in ("sru", "lrn", "ran", "scrn", "lstm", "nru"))


def look(name: str, number: int = 0) -> Look:
    """Return the colour and the line style of a unit or a variant.

    number   counts groups of the same name in a panel: each further one gets another line style
    """
    shade, style = shade_and_style(name)
    return Look(shade.light, MORE_STYLES[(number - 1) % len(MORE_STYLES)] if number else style)


def shade_of(name: str) -> Shade:
    """Return the colour of a unit, for marks that have no line."""
    return shade_and_style(name)[0]


def shade_and_style(name: str) -> tuple[Shade, Any]:
    return LOOKS.get(name) or LOOKS.get(name.split("-")[0]) or unlisted(name)


def unlisted(name: str) -> tuple[Shade, Any]:
    """Return a colour and a style that depend only on the name, for units that LOOKS does not have."""
    number = zlib.crc32(name.encode())
    return SHADES[3 + number % (len(SHADES) - 3)], MORE_STYLES[number % len(MORE_STYLES)]


def looks(groups: Sequence[Group]) -> list[Look]:
    names = [group.name for group in groups]
    if 1 < len(names) <= len(ONE_UNIT) and len(set(names)) == 1:
        return [Look(shade.light, style) for shade, style in ONE_UNIT[: len(names)]]
    return [look(name, names[:number].count(name)) for number, name in enumerate(names)]


def css_variables() -> str:
    """Return the CSS variables of all colours, with other values for readers who prefer dark pages."""
    light = " ".join(f"{shade.variable}: {shade.light};" for shade in SHADES)
    dark = " ".join(f"{shade.variable}: {shade.dark};" for shade in SHADES)
    light += f" --page: {LIGHT_PAGE}; --stripe: #F3F3F1; color-scheme: light dark;"
    dark += f" --page: {DARK_PAGE}; --stripe: #272727;"
    return f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"


def with_variables(svg: str) -> str:
    """Return the SVG with CSS variables in place of the colours of SHADES."""
    for shade in SHADES:
        for colour in (shade.light.lower(), shade.light):
            svg = svg.replace(colour, f"var({shade.variable})")
    return svg
