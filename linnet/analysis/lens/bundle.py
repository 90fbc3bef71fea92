"""The page as one file: the modules of this folder, joined in the order in which they import each other."""

from __future__ import annotations

import re
from graphlib import TopologicalSorter
from importlib.resources import files

IMPORT = re.compile(r'^import \{ ([^}]*) \} from "\./(\w+)\.js";\n', re.MULTILINE)
EXPORT = re.compile(r"^export ((?:async )?(?:const|let|function|class) (\w+))", re.MULTILINE)


def read(name: str) -> str:
    """Return a file of this folder."""
    return (files("linnet.analysis.lens") / name).read_text(encoding="utf-8")


def bundle(entry: str) -> str:
    """Return the module `entry` with everything that it imports, as one script that defines the same names.

    Each module becomes a function that is called at once and returns what it exports: the names inside do
    not meet those of other modules.
    """
    sources: dict[str, str] = {}
    waiting = [entry]
    while waiting:
        name = waiting.pop()
        if name not in sources:
            sources[name] = read(f"{name}.js")
            waiting += imported(sources[name])
    order = TopologicalSorter({name: imported(source) for name, source in sources.items()})
    return "".join(as_function(name, sources[name]) for name in order.static_order())


def imported(source: str) -> list[str]:
    return [name for _, name in IMPORT.findall(source)]


def as_function(name: str, source: str) -> str:
    """Return `const $name = (() => { ...; return { exports }; })();`."""
    inner = IMPORT.sub(lambda found: f"const {{ {found[1]} }} = ${found[2]};\n", source)
    return f"const ${name} = {as_expression(inner)};\n"


def as_expression(source: str) -> str:
    """Return an expression whose value has the exports of a module that imports nothing."""
    exports = ", ".join(name for _, name in EXPORT.findall(source))
    return f"(() => {{\n{EXPORT.sub(lambda found: found[1], source)}\nreturn {{ {exports} }};\n}})()"


def harmless(script: str) -> str:
    """Return a script that can stand in a page: nothing in it ends the element or starts a comment there."""
    return script.replace("</", "<\\/").replace("<!--", "<\\!--")
