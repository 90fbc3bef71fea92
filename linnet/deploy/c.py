"""Export of models to C."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from linnet.base.options import choose
from linnet.deploy.exported import expected_outputs, exported_program, inputs_for_test, stream_step_of

if TYPE_CHECKING:
    from linnet.deploy.integer.model import IntegerModel
    from linnet.deploy.step.program import Program
    from linnet.models.stream_step import StreamStep

# More weights than this are no source code for a compiler.
MOST_IN_SOURCE = 10_000_000
# The steps of the test program.
STEPS = 20


def export_c(
    model: nn.Module,
    folder: str | PathLike[str],
    *,
    example: tuple[Tensor, Any] | None = None,
    int8: bool = False,
    skip: Sequence[str] = (),
    flush_denormals: bool = False,
    weights: str = "arrays",
    vocabulary: Sequence[str | bytes] | None = None,
    name: str = "model",
) -> Path:
    """Write one step of `model` as C99 that needs neither libc nor libm, and return the folder.

        linnet.export_c(model, "device")

    example           x and state, for a module of your own whose forward(x, state) returns y and the new
                      state: a batch of one, the state at the start. docs/deploy.md says what it may contain
    int8              export linnet.quantize(model); with an example, round the matrices of all products. A
                      model that is quantised already is exported as it is, also one of
                      `linnet.quantize_integer`, whose step has no number in floating point
    skip              names of modules of an example that stay in float32 with int8=True
    flush_denormals   numbers below 1e-30 in the state become 0 after each step: silence stays fast
    weights           "arrays": constants in the source; "file": a file to read or map, model.weights
    vocabulary        the texts of the tokens of a language model: main.c then continues a text
    name              how the names of files, functions and structs start

    The folder has the header and the source, a test program with the outputs of some steps, and a README. The
    model is one of those that docs/deploy.md lists.
    """
    from linnet.deploy.integer.model import IntegerModel
    from linnet.deploy.source.folder import new_folder

    choose("weights", weights, ("arrays", "file"))
    check_name(name)
    if isinstance(model, IntegerModel):
        return export_integers(model, Path(folder), weights, vocabulary, name)
    program = exported_program(model, example, int8, skip, flush_denormals)
    check_size(program, weights)
    inputs = inputs_for_test(model, program, STEPS)
    outputs = expected_outputs(model, example, program, inputs)
    files = files_of(program, (inputs, outputs), name, weights == "file", vocabulary, stream_step_of(model))
    record = {"target": "c", "int8": program.is_int8, "weights": weights, "fingerprint": program.fingerprint}
    with new_folder(Path(folder), record) as work:
        write_files(work, files)
    return Path(folder)


def export_integers(
    model: IntegerModel, folder: Path, weights: str, vocabulary: Sequence[str | bytes] | None, name: str
) -> Path:
    from linnet.deploy.source.folder import new_folder
    from linnet.deploy.source.integer_c import integer_files, integer_test
    from linnet.deploy.step.build import example_inputs

    if weights == "file" or vocabulary is not None:
        raise ValueError(
            "a model in whole numbers has its weights in the source and no program that continues a text: "
            "leave out weights='file' and vocabulary"
        )
    program = model.integers.program
    files = integer_files(model.integers, name)
    numbers = model.input_numbers(example_inputs(program, STEPS)[:, None])
    outputs = model.run(numbers)[0][:, 0]
    files[f"{name}_test.c"] = integer_test(model.integers, numbers[:, 0], outputs, name)
    record = {"target": "c", "int8": "integer", "weights": weights, "fingerprint": program.fingerprint}
    with new_folder(folder, record) as work:
        write_files(work, files)
    return folder


def check_name(name: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ValueError(
            f"name starts the names of C functions: lower-case letters, digits and _; got {name!r}"
        )


def check_size(program: Program, weights: str) -> None:
    if weights == "arrays" and program.weights > MOST_IN_SOURCE:
        raise ValueError(
            f"{program.weights:,} weights are too many for the source code of a compiler; pass "
            "weights='file' (--weights file)"
        )


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> None:
    for name, contents in files.items():
        data = contents.encode() if isinstance(contents, str) else contents
        (folder / name).write_bytes(data)


def files_of(
    program: Program,
    steps: tuple[Tensor, Tensor],
    name: str,
    weights_file: bool,
    vocabulary: Sequence[str | bytes] | None,
    step: StreamStep | None,
) -> dict[str, str | bytes]:
    from linnet.deploy.source.c import readme, source_files
    from linnet.deploy.source.c_programs import continues_texts, test_program, text_program
    from linnet.deploy.source.stream import example_program, readme_section

    files = source_files(program, name, weights_file)
    files[f"{name}_test.c"] = test_program(program, *steps, name, weights_file)
    speaks = continues_texts(program, vocabulary)
    if speaks and vocabulary is not None:
        files["main.c"] = text_program(vocabulary, name, weights_file)
    if step is not None:
        files["main.c"] = example_program(step, name, weights_file)
    about = readme_section(step, f"cc -O3 {name}.c main.c && ./a.out < values.csv")
    files["README.md"] = readme(program, name, weights_file, speaks, STEPS, about)
    return files
