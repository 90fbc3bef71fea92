"""Write the tables of README.md and of pages in benchmarks and docs, and figures of sentences, from records.

python -m tools.pages
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import blocks
from benchmarks.fresh import has_history, since
from benchmarks.report import (
    NOTHING,
    cell_steps,
    draw,
    latest,
    name_of,
    peaks,
    raced,
    shape_of,
    shapes_in,
    units_in,
)
from benchmarks.rows import Row, read
from benchmarks.settings import Shape
from experiments import small_models, whole_numbers
from linnet.analysis.drawing import new_figure
from linnet.atlas.record import Atlas, read_atlas
from linnet.atlas.table import ABOUT_VIEWS, FASTEST, matrix, summary, with_results
from linnet.atlas.table import circumstances as circumstances_of
from linnet.base.pages import filled
from linnet.base.tables import markdown
from tools import decision, figures, microcontroller, ready, targets
from tools.compat import models_page, record
from tools.compat import page as compatibility
from tools.compat.forecasts import measure as rivals
from tools.compat.forecasts.table import summary as summary_of_rivals
from tools.compat.projects import MODELS, PROJECTS
from tools.unit_advice import ABOUT_ADVICE, advice_table

ROOT = Path(__file__).parents[1]
README, BENCHMARKS = ROOT / "README.md", ROOT / "benchmarks" / "README.md"
DEPLOY, WHICH_UNIT = ROOT / "docs" / "deploy.md", ROOT / "docs" / "which_unit.md"
READY = ROOT / "docs" / "ready.md"
INT8, STREAMING = ROOT / "docs" / "int8.md", ROOT / "docs" / "streaming.md"
ATLAS, ATLAS_RECORD = ROOT / "docs" / "atlas.md", ROOT / "benchmarks" / "atlas.json"
RESULTS, PLOT = ROOT / "benchmarks" / "results.csv", ROOT / "benchmarks" / "speed.png"
EXPERIMENTS = ROOT / "experiments" / "README.md"
RIVALS = {
    **{
        "linnet-sru": "Linnet, SRU",
        "linnet-gru": "Linnet, GRU",
        "neuralforecast-lstm": "neuralforecast, LSTM",
    },
    **{"neuralforecast-gru": "neuralforecast, GRU", "darts-block": "darts, BlockRNNModel"},
    **{"darts-block-wide": "darts, BlockRNNModel, 2 layers of 128", "darts-rnn": "darts, RNNModel"},
    **{"seasonal-naive": "seasonal naive", "naive2": "Naive2"},
}
MEMORY = {"new": "", "reused": ", reused memory", "huge pages": ", huge pages for all"}
PICTURE = ROOT / "docs" / "pictures" / "speed.png"
ENGINES = ("ONNX Runtime", "OpenVINO", "LiteRT")
ENGINE_UNITS = ("lstm", "lstm frozen", "gru", "gru frozen")
README_UNITS = ("sru", "lrn", "ran", "nru", "scrn", "gru", "lstm")
README_SHAPES = (Shape(256, 32, 512), Shape(128, 1, 512))
README_STEPS = (Shape(1, 1, 64), Shape(1, 1, 512))


def write_readme(readme: Path, rows: Sequence[Row]) -> None:
    """Write the table with the speed of a few units at one size."""
    fill(readme, "speed", short_table(rows))


def write_engines(readme: Path, rows: Sequence[Row]) -> None:
    """Write the table with the speed relative to inference engines."""
    fill(readme, "engines", engines_table(rows))


def write_decision(readme: Path, records: decision.Records) -> None:
    """Write the tables of light units and LSTM, and of the times in other libraries."""
    fill(readme, "decision", decision.decision_table(records))
    fill(readme, "libraries", decision.libraries_table(records))


def engines_table(rows: Sequence[Row]) -> str:
    """Return the range of Linnet's times relative to each engine, over sizes and directions."""
    known = [row for row in latest(rows) if row["what"] == "engines" and row["ratio_to"] in ENGINES]
    if not known:
        raise ValueError(
            "no rows compare a layer with inference engines; `python -m benchmarks --what engines` measures "
            "them"
        )
    body = [[to, *(range_of(known, unit, to) for unit in ENGINE_UNITS)] for to in ENGINES]
    last, commits = max(known, key=lambda row: row["date"]), commits_of(known)
    steps, sizes = (f"{min(of)} to {max(of)}" for of in ([shape_of(row)[i] for row in known] for i in (0, 2)))
    about = (
        f"Time of Linnet relative to inference engines: one sequence of {steps} steps, {sizes} channels, one "
        f"direction and both, one thread of {last['cpu']}, float32, lowest to highest ratio, measured on "
        f"{last['date'][:10]}, commit {commits}{since(known)}. *Frozen*: after `linnet.freeze`, since "
        "engines have constant weights, too."
    )
    return f"{about}\n\n{markdown(['', *map(engine_unit, ENGINE_UNITS)], body)}"


def range_of(rows: Sequence[Row], unit: str, to: str) -> str:
    found = [row for row in rows if (row["unit"], row["ratio_to"]) == (unit, to)]
    return reached(found) if found else NOTHING


def engine_unit(unit: str) -> str:
    name, _, how = unit.partition(" ")
    return f"{name_of(name)}, {how}" if how else name_of(name)


def write_picture(path: Path, rows: Sequence[Row]) -> None:
    """Write the picture of README: a few units at one size, relative to nn.LSTM."""
    known = [row for row in measured(rows) if row["unit"] in README_UNITS]
    shape = next((each for each in README_SHAPES if each in map(shape_of, known)), shape_of(known[0]))
    drawn = [row for row in known if shape_of(row) == shape]
    figure, (axes,) = new_figure(1, height=3.2, width=7.5)
    figure.set_facecolor("white")
    draw(axes, drawn, units_in(drawn))
    axes.set_title(f"a layer of {shape.d} channels, {shape.L} steps, batch {shape.B}", fontsize=10)
    axes.set_xlabel("time relative to nn.LSTM (shorter is faster)")
    figure.savefig(path, dpi=130)


def write_benchmarks(page: Path, rows: Sequence[Row], plot: Path | None = None) -> None:
    """Write the tables with the speed of all units at all sizes, and the targets."""
    picture = image(page, plot) if plot is not None and plot.exists() else ""
    fill(page, "speed", "\n\n".join(filter(None, [speed_table(rows), picture])))
    fill(page, "targets", targets_table(rows))


def write_which_unit(page: Path, rows: Sequence[Row], atlas: Atlas) -> None:
    """Write the table with the peak memory of a training step of each unit, and the best units by task."""
    fill(page, "memory", memory_table(peaks(rows)))
    fill(page, "atlas", best_units(atlas))


def memory_table(rows: Sequence[Row]) -> str:
    """Return the peaks in megabytes and relative to nn.LSTM, smallest first."""
    ordered = sorted(rows, key=lambda row: float(row["peak_mb"]))
    body = [
        [name_of(row["unit"]), f"{float(row['peak_mb']):.0f}", f"{float(row['ratio']):.2f}"]
        for row in ordered
    ]
    last = max(rows, key=lambda row: row["date"])
    where = f"{last['dtype']}, torch {last['torch']}, measured on {last['date'][:10]}"
    where += f", commit {commits_of(rows)}{since(rows)}"
    about = f"One layer, {shape_of(last)} (time steps x batch x input and hidden size), {where}."
    return f"{about}\n\n{markdown(['unit', 'MB', 'relative to `nn.LSTM`'], body)}"


def write_atlas(page: Path, atlas: Atlas) -> None:
    """Write the results of all units on all tasks, in both views."""
    where = "The page with the plot, the times and the sizes is `atlas_page.html` on the site."
    tables = [
        f"**At equal {view}.** {about}\n\n{markdown(*matrix(atlas, view))}"
        for view, about in ABOUT_VIEWS.items()
        if with_results(atlas, view)
    ]
    fill(page, "atlas", "\n\n".join([f"{about_atlas(atlas)} {where}", *tables]))


def about_atlas(atlas: Atlas) -> str:
    changed = since(({"commit": each.commit} for each in atlas.circumstances), "atlas").removeprefix("; ")
    return " ".join(filter(None, [circumstances_of(atlas), changed and f"T{changed[1:]}."]))


def best_units(atlas: Atlas) -> str:
    """Return the advised units next to the best of each task, and then the best of all tasks."""
    tables = [best_of(atlas, view) for view in ABOUT_VIEWS if with_results(atlas, view)]
    return "\n\n".join([about_atlas(atlas), ABOUT_ADVICE, advice_table(atlas), *tables])


def best_of(atlas: Atlas, view: str) -> str:
    head, body = summary(atlas, view)
    fastest = " The last column is the fastest of the units whose interval meets that of the best."
    about = f"The best of each task at equal {view}.{fastest if FASTEST in head else ''}"
    return f"{about}\n\n{markdown(head, body)}"


def write_deploy(page: Path, results: Mapping[str, targets.Result]) -> None:
    """Write the table with the targets of exports on which every model was compared with Python."""
    fill(page, "targets", exports_table(results))


def exports_table(results: Mapping[str, targets.Result]) -> str:
    body = [
        [
            *(targets.TARGETS[name].about, str(result.models), f"{result.difference:.1e}"),
            f"{result.date[:10]}, commit {result.commit}",
        ]
        for name, result in results.items()
    ]
    changed = since((vars(result) for result in results.values()), "target")
    about = f"Compared at these commits{changed}."
    return f"{about}\n\n{markdown(['target', 'models', 'largest difference', 'compared'], body)}"


def write_streaming(page: Path, rows: Sequence[Row]) -> None:
    """Write the time of a frame of one stream in microseconds."""
    fill(page, "frames", frames_table([row for row in latest(rows) if row["what"] == "blocks"]))


def frames_table(rows: Sequence[Row]) -> str:
    if not rows:
        return "No times are recorded yet; `python -m benchmarks --what blocks` measures them."
    frames = rows[0]["L"]
    times = {
        (row["unit"], row["d"], row["backend"]): f"{1000 * float(row['p50_ms']) / float(row['L']):.1f}"
        for row in rows
    }
    ways = (blocks.STEPS, blocks.RUN, blocks.MODULE)
    head = [
        "unit",
        "channels",
        blocks.STEPS,
        f"`run`, {frames} frames",
        f"the module itself, {frames} frames",
    ]
    body = [
        [name_of(unit), size, *(times.get((unit, size, way), NOTHING) for way in ways)]
        for unit, size in dict.fromkeys((row["unit"], row["d"]) for row in rows)
    ]
    return f"Microseconds of a frame, one layer; {circumstances(rows)}.\n\n{markdown(head, body)}"


def write_int8(page: Path, rows: Sequence[Row], counts: Sequence[Row]) -> None:
    """Write what rounding costs and gains: figures, times, and instructions on microcontrollers."""
    fill(page, "small models", small_models.table(small_models.RECORD.read(small_models.RESULTS)))
    fill(page, "whole numbers", whole_numbers.table(whole_numbers.RECORD.read(whole_numbers.RESULTS)))
    fill(page, "times", int8_table(rows))
    fill(page, "microcontroller", microcontroller_table(counts))


def int8_table(rows: Sequence[Row]) -> str:
    """Return the times of units in int8 relative to those in float32."""
    known = [row for row in latest(rows) if row["what"] == "int8" and row["ratio_to"] == "float32"]
    ratios = {(row["unit"], shape_of(row)): f"{float(row['ratio']):.2f}" for row in known}
    shapes = list(dict.fromkeys(map(shape_of, known)))
    head = ["unit", *(f"{'step' if shape.is_step else 'layer'}, {shape}" for shape in shapes)]
    body = [
        [name_of(unit), *(ratios.get((unit, shape), NOTHING) for shape in shapes)] for unit in units_in(known)
    ]
    about = (
        "Time in int8 relative to float32, without gradients, by time steps x batch x input and hidden size; "
        f"{circumstances(known)}."
    )
    return f"{about}\n\n{markdown(head, body)}"


def microcontroller_table(rows: Sequence[Row]) -> str:
    last = max(rows, key=lambda row: row["date"])
    about = f"gcc {last['compiler']}, QEMU {last['emulator']}, measured on {last['date'][:10]}, commit "
    about += f"{commits_of(rows)}{since(rows, 'microcontroller')}."
    head = ["model", "arithmetic", *(f"instructions, {name}" for name in microcontroller.PROCESSORS)]
    head += ["flash, bytes", "memory, bytes", "difference"]
    counts = {
        (row["model"], row["arithmetic"], row["processor"]): f"{int(row['instructions']):,}" for row in rows
    }
    first = next(iter(microcontroller.PROCESSORS))
    body = [
        [
            *(row["model"], row["arithmetic"]),
            *(counts[row["model"], row["arithmetic"], name] for name in microcontroller.PROCESSORS),
            *(f"{int(row['flash']):,}", f"{int(row['memory']):,}", row["difference"]),
        ]
        for row in rows
        if row["processor"] == first
    ]
    return f"{about}\n\n{markdown(head, body)}"


def write_rivals(page: Path, rows: Sequence[Row]) -> None:
    """Write the forecasts of other libraries beside those of Linnet."""
    sets = list(dict.fromkeys(row["set"] for row in rows))
    fill(page, "rivals", rivals_table(rows, sets))


def rivals_table(rows: Sequence[Row], sets: Sequence[str], named: Mapping[str, str] = RIVALS) -> str:
    last, days = rows[-1], sorted({row["date"][:10] for row in rows})
    when = " to ".join(dict.fromkeys((days[0], days[-1])))
    about = (
        "MASE, sMAPE in %, and the CPU seconds of training with the number of seeds, if there are several: "
        f"then ± is their standard deviation. One thread of {last['cpu']}, a busy machine, measured on "
        f"{when}, commit {commits_of(rows)}."
    )
    return f"{about}\n\n{summary_of_rivals(rows, named, sets)}"


def fill(page: Path, table: str, body: str) -> None:
    page.write_text(filled(page, body, *markers(table)), encoding="utf-8")


def markers(table: str) -> tuple[str, str]:
    return f"<!-- {table}: begin, written by tools/pages.py -->", f"<!-- {table}: end -->"


def image(page: Path, plot: Path) -> str:
    path = Path(os.path.relpath(plot, page.parent)).as_posix()
    return f"![Time of each unit relative to nn.LSTM]({path})"


def measured(rows: Sequence[Row]) -> list[Row]:
    compared = raced(rows)
    if not compared:
        raise ValueError(
            "no rows compare a layer with nn.LSTM; `python -m benchmarks --what speed` measures them"
        )
    return compared


def short_table(rows: Sequence[Row]) -> str:
    layers, cells = measured(rows), cell_steps(rows)
    shapes = shapes_in(layers)
    shapes = [shape for shape in README_SHAPES if shape in shapes] or shapes[:1]
    sizes = list(dict.fromkeys(map(shape_of, cells)))
    steps = [shape for shape in README_STEPS if shape in sizes] or sizes[:1]
    known = [row for row in layers if row["unit"] in README_UNITS and shape_of(row) in shapes]
    stepped = [row for row in cells if row["unit"] in README_UNITS and shape_of(row) in steps]
    head = ["unit", *(f"layer, {shape}: inference / training" for shape in shapes)]
    head += [f"one step of a cell, {shape}" for shape in steps]
    body = [
        [
            name_of(unit),
            *(ratios(known, unit, shape) for shape in shapes),
            *(ratios(stepped, unit, shape) for shape in steps),
        ]
        for unit in units_in(known)
    ]
    note = " Steps of cells are without gradients and relative to `nn.LSTMCell`." if steps else ""
    return f"{conditions([*known, *stepped])}{note}\n\n{markdown(head, body)}"


def speed_table(rows: Sequence[Row]) -> str:
    known = measured(rows)
    shapes = shapes_in(known)
    tables = [table_of(known, shapes)]
    steps = cell_steps(rows)
    if steps:
        tables.append("A step of a cell without gradients, relative to `nn.LSTMCell`:")
        tables.append(table_of(steps, list(dict.fromkeys(map(shape_of, steps)))))
    written = f"{conditions([*known, *steps])} A column with two numbers is inference / training."
    return "\n\n".join([written, *tables])


def table_of(rows: Sequence[Row], shapes: Sequence[Shape]) -> str:
    body = [[name_of(unit), *(ratios(rows, unit, shape) for shape in shapes)] for unit in units_in(rows)]
    return markdown(["unit", *map(str, shapes)], body)


def conditions(rows: Sequence[Row]) -> str:
    """Return a sentence on what was measured, on which machine and with which versions."""
    return (
        "Time relative to `nn.LSTM` of the same size in the same run (below 1 is faster than `nn.LSTM`), "
        f"by time steps x batch x input and hidden size; {circumstances(rows)}."
    )


def circumstances(rows: Sequence[Row]) -> str:
    last = max(rows, key=lambda row: row["date"])
    where = f"measured on {last['date'][:10]} with {last['threads']} threads of {last['cpu']}"
    versions = f"{last['dtype']}, torch {last['torch']}, commit {commits_of(rows)}{since(rows)}"
    return f"median of several rounds, {where}, {versions}"


def commits_of(rows: Sequence[Row]) -> str:
    return ", ".join(dict.fromkeys(row["commit"] or "unknown" for row in rows))


def ratios(rows: Sequence[Row], unit: str, shape: Shape) -> str:
    by_mode = {row["mode"]: row["ratio"] for row in rows if row["unit"] == unit and shape_of(row) == shape}
    modes = ("step",) if shape.is_step else ("inference", "training")
    return " / ".join(f"{float(by_mode[mode]):.2f}" if mode in by_mode else NOTHING for mode in modes)


def targets_table(rows: Sequence[Row]) -> str:
    """Return the targets and the measured values; units and shapes with the same target share a row."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    known = [row for row in latest(rows) if row["target"]]
    for row in known:
        groups.setdefault((described(row), row["ratio_to"], row["target"]), []).append(row)
    body = [
        [f"{names(group)} {what}".strip(), measure(to), reached(group), f"at most {target}", verdict(group)]
        for (what, to, target), group in groups.items()
    ]
    days = sorted({row["date"][:10] for row in known})
    when = " to ".join(dict.fromkeys((days[0], days[-1])))
    about = f"Measured on {when}, commit {commits_of(known)}{since(known)}."
    return f"{about}\n\n{markdown(['measured', 'relative to', 'result', 'target', 'met'], body)}"


def described(row: Row) -> str:
    """Return what was measured, without the unit."""
    what = "" if row["what"] in ("speed", "start") else f"{row['what']}, "
    # The share of the matrix products in a layer's time depends on its width, and so does the target.
    width = f", d = {row['d']}" if row["ratio_to"] == "limit" else ""
    memory = MEMORY[row["memory"]]
    return f"{what}{row['mode']}{width}{memory}"


def names(rows: Sequence[Row]) -> str:
    return ", ".join(dict.fromkeys(name_of(row["unit"]) for row in rows))


def measure(to: str) -> str:
    return {"": NOTHING, "limit": "the limit"}.get(to) or (f"`{to}`" if to.startswith("nn.") else name_of(to))


def reached(rows: Sequence[Row]) -> str:
    if not rows[0]["ratio"]:
        return " to ".join(dict.fromkeys(time_in_words(float(row["p50_ms"])) for row in rows))
    low, *_, high = sorted(2 * [float(row["ratio"]) for row in rows])
    return " to ".join(dict.fromkeys((f"{low:.2f}", f"{high:.2f}")))


def time_in_words(milliseconds: float) -> str:
    return f"{milliseconds:.0f} ms" if milliseconds >= 1 else f"{1000 * milliseconds:.0f} µs"


def verdict(rows: Sequence[Row]) -> str:
    met = sum(row["met"] == "yes" for row in rows)
    return {len(rows): "yes", 0: "no"}.get(met, f"{met} of {len(rows)}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.pages", description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="CSV", help="the rows to read")
    rows = read(parser.parse_args(arguments).results)
    if not has_history():
        parser.error(
            "pages say whether code has changed since it was measured; run this in a whole git clone"
        )
    write_readme(README, rows)
    write_engines(README, rows)
    write_decision(README, decision.Records.read())
    write_picture(PICTURE, rows)
    write_benchmarks(BENCHMARKS, rows, PLOT)
    atlas = read_atlas(ATLAS_RECORD)
    write_which_unit(WHICH_UNIT, rows, atlas)
    write_atlas(ATLAS, atlas)
    write_deploy(DEPLOY, targets.read_results())
    write_int8(INT8, rows, microcontroller.read_results())
    fill(READY, "ready", ready.table())
    write_streaming(STREAMING, rows)
    write_rivals(EXPERIMENTS, rivals.read(rivals.RESULTS))
    known = record.read(record.RESULTS)
    compatibility.write(compatibility.PAGE, known, PROJECTS.values())
    models_page.write(models_page.PAGE, known, MODELS.values())
    figures.update()
    pages = (
        README,
        BENCHMARKS,
        WHICH_UNIT,
        ATLAS,
        DEPLOY,
        INT8,
        STREAMING,
        READY,
        EXPERIMENTS,
        compatibility.PAGE,
        models_page.PAGE,
    )
    print(f"Wrote the tables of {', '.join(page.relative_to(ROOT).as_posix() for page in pages)}.")


if __name__ == "__main__":
    main()
