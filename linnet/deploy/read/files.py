"""Which kind of model a file is, told from its first bytes, and the reader for it."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from torch import Tensor

from linnet.base.tables import text_table
from linnet.deploy.read.archive import Archive
from linnet.deploy.read.build import PROGRAM
from linnet.deploy.read.errors import UnreadableModel
from linnet.deploy.read.limits import MEMORY, Account
from linnet.deploy.read.module import FileModel
from linnet.deploy.read.onnx_file import read_graph
from linnet.deploy.read.program_file import MODEL, read_program
from linnet.runs.errors import Damaged
from linnet.runs.untrusted import harmless, read_torch

ZIP = b"PK\x03\x04"
# Pickles of protocol 2 and later, which torch.save wrote before it wrote archives.
PICKLE = b"\x80"
MOST_NAMES = 20
CODE = "which runs code when it is loaded; if you trust it, load it yourself"


def read_model(
    path: str | PathLike[str],
    *,
    fixed: Mapping[str, Any] | None = None,
    memory_limit: int = MEMORY,
) -> FileModel:
    """Return the model in an ONNX file or a program of torch.export, with Linnet's recurrent layers.

        model = linnet.read_model("silero_vad.onnx", fixed={"sr": 16000})
        output, state = model(x, state)

    path           the file; tensors of an ONNX file that are in other files must be in its folder
    fixed          values of inputs that never change: the module does not take them
    memory_limit   the most bytes that the file, and each call of the module, may take

    The file is untrusted input: no code of it runs, and sizes are checked before memory is taken. If it
    cannot be read, an `UnreadableModel`, which is a ValueError, says why. The parameters have the names of
    the file.
    """
    path = Path(path)
    with path.open("rb") as file:
        start = file.read(4)
    if start[:1] == PICKLE:
        raise UnreadableModel(f"{path} is a pickle, {CODE} and call linnet.convert(model)")
    if start != ZIP:
        return read_onnx(path, fixed or {}, memory_limit)
    archive = Archive(path)
    if MODEL in archive:
        account = Account(memory_limit)
        return FileModel(read_program(archive, account), PROGRAM, fixed or {}, account)
    if "constants.pkl" in archive:
        raise UnreadableModel(f"{path} is TorchScript, {CODE} and write it as ONNX with torch.onnx.export")
    raise UnreadableModel(about_weights(path, memory_limit))


def read_onnx(path: Path, fixed: Mapping[str, Any], memory_limit: int) -> FileModel:
    size = path.stat().st_size
    Account(memory_limit).check(2 * size, f"the file {path.name}")
    with path.open("rb") as file:
        content = file.read(size)
    return model_of(content, path.resolve().parent, fixed, memory_limit)


def model_of(content: bytes, folder: Path | None, fixed: Mapping[str, Any], memory_limit: int) -> FileModel:
    """Return the model of an encoded ModelProto, whose further files are in `folder`."""
    account = Account(memory_limit)
    account.take(2 * len(content), "the file")
    graph, version = read_graph(content, folder, account)
    account.free(2 * len(content))
    return FileModel(graph, version, fixed, account)


# ------------------------------------------------------------------------------------ weights alone


def about_weights(path: Path, memory_limit: int) -> str:
    """Say what a file of torch.save has, which needs the class of the model to become one."""
    if path.stat().st_size > memory_limit:
        return f"{path} has {path.stat().st_size:,} bytes, and the limit is {memory_limit:,}"
    try:
        value = read_torch(path)
    except Damaged as error:
        return (
            f"{path} is no state dict ({error}) but perhaps a pickled module, {CODE} with "
            "torch.load(path, weights_only=False) and call linnet.convert(model)"
        )
    tensors = named_tensors(value)
    rows = [[harmless(name)[:60], str(tuple(each.shape))] for name, each in tensors[:MOST_NAMES]]
    more = f"\n... and {len(tensors) - MOST_NAMES} more" if len(tensors) > MOST_NAMES else ""
    return (
        f"{path} has {len(tensors)} tensors and no model. Build the model with its class, then call "
        "model.load_state_dict(torch.load(path, weights_only=True)) and linnet.convert(model)\n"
        + text_table([["tensor", "shape"], *rows], left=(0, 1))
        + more
    )


def named_tensors(value: Any, prefix: str = "") -> list[tuple[str, Tensor]]:
    """The tensors of a state dict, or of one within a checkpoint."""
    if isinstance(value, Tensor):
        return [(prefix, value)]
    if not isinstance(value, dict) or prefix.count(".") > 64:
        return []
    pairs = [(f"{prefix}.{name}" if prefix else str(name), each) for name, each in value.items()]
    return [found for name, each in pairs for found in named_tensors(each, name)]
