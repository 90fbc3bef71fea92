"""Tensors of an ONNX file, checked against the bytes that are really there."""

from __future__ import annotations

import math
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from linnet.deploy.read.errors import UnreadableModel
from linnet.deploy.read.limits import Account, bytes_of, checked_shape

# The numbers of onnx.TensorProto.DataType.
DTYPES = {
    1: torch.float32,
    2: torch.uint8,
    3: torch.int8,
    5: torch.int16,
    6: torch.int32,
    7: torch.int64,
    9: torch.bool,
    10: torch.float16,
    11: torch.float64,
    16: torch.bfloat16,
}
# The field of a tensor whose numbers are not in raw_data; 16-bit floats are in int32_data as their bits.
FIELDS = {1: "float_data", 7: "int64_data", 11: "double_data"}
EXTERNAL = 1
# Types of numpy by the name that torch has for them; bfloat16 is read as its bits.
NUMPY = {torch.bfloat16: "<i2", torch.bool: "?"}


def text_of(value: str | bytes) -> str:
    """Return a text of a message; protobuf gives bytes for what is not UTF-8."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def dtype_of(number: int, what: str) -> torch.dtype:
    if number not in DTYPES:
        names = ", ".join(str(each).removeprefix("torch.") for each in DTYPES.values())
        raise UnreadableModel(f"{what} has numbers of ONNX's type {number}; Linnet reads {names}")
    return DTYPES[number]


def numpy_type(dtype: torch.dtype) -> np.dtype:
    name = NUMPY.get(dtype) or "<" + np.dtype(str(dtype).removeprefix("torch.")).str[1:]
    return np.dtype(name)


def tensor_of(proto: Any, folder: Path | None, account: Account) -> Tensor:
    """Return the tensor of a TensorProto; `folder` has the files of external data (None: refuse these)."""
    what = f"the tensor {text_of(proto.name)!r}"
    if proto.HasField("segment"):
        raise UnreadableModel(f"{what} is a segment of another one, which Linnet does not read")
    dtype = dtype_of(proto.data_type, what)
    shape = checked_shape(list(proto.dims), what)
    size = bytes_of(shape, dtype, what)
    account.take(size, what)
    if proto.data_location == EXTERNAL:
        content = external_bytes(proto, folder, size, what)
    elif proto.HasField("raw_data"):
        content = proto.raw_data
    else:
        return numbers_in_field(proto, dtype, shape, what)
    check_count(len(content), size, "bytes", shape, what)
    return from_bytes(content, dtype, shape)


def from_bytes(content: bytes, dtype: torch.dtype, shape: list[int]) -> Tensor:
    # A copy, because torch refuses to write to the memory of bytes.
    numbers = np.frombuffer(content, dtype=numpy_type(dtype)).copy()
    if dtype == torch.bool:
        # Other bytes than 0 and 1 are no valid values of bool.
        numbers = numbers.view(np.uint8) != 0
    tensor = torch.from_numpy(numbers).reshape(shape)
    return tensor.view(torch.bfloat16) if dtype == torch.bfloat16 else tensor


def numbers_in_field(proto: Any, dtype: torch.dtype, shape: list[int], what: str) -> Tensor:
    numbers = getattr(proto, FIELDS.get(proto.data_type, "int32_data"))
    check_count(len(numbers), math.prod(shape), "numbers", shape, what)
    if dtype in (torch.float16, torch.bfloat16):
        bits = np.array(numbers, dtype=np.int64).astype(np.uint16).view(np.int16)
        return torch.from_numpy(bits).view(dtype).reshape(shape)
    wide = np.array(numbers, dtype=np.float64 if dtype.is_floating_point else np.int64)
    return torch.from_numpy(wide.astype(numpy_type(dtype))).reshape(shape)


def check_count(found: int, wanted: int, unit: str, shape: list[int], what: str) -> None:
    if found != wanted:
        raise UnreadableModel(f"{what} of the shape {shape} has {found:,} {unit}, and needs {wanted:,}")


# ------------------------------------------------------------------------------------- other files


def external_bytes(proto: Any, folder: Path | None, size: int, what: str) -> bytes:
    """Read the numbers of a tensor from a file beside the model."""
    if folder is None:
        raise UnreadableModel(f"{what} is in another file, and there is no folder to look in; pass a path")
    given = {text_of(entry.key): text_of(entry.value) for entry in proto.external_data}
    path = inside(folder, given.get("location", ""), what)
    offset, length = (
        number_in(given, name, usual, what) for name, usual in (("offset", 0), ("length", size))
    )
    if length != size:
        raise UnreadableModel(f"{what} has {length:,} bytes in {path.name}, and needs {size:,}")
    with path.open("rb") as file:
        there = os.fstat(file.fileno()).st_size
        if offset + size > there:
            raise UnreadableModel(f"{what} is at byte {offset:,} of {path.name}, which has {there:,}")
        file.seek(offset)
        return file.read(size)


def inside(folder: Path, location: str, what: str) -> Path:
    """Return the file if it is a regular file in the folder of the model, also when links are followed."""
    home = folder.resolve()
    try:
        path = (home / location).resolve()
        regular = path.is_relative_to(home) and stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError, RuntimeError):
        regular = False
    if not location or not regular:
        raise UnreadableModel(
            f"{what} is in the file {location!r}; such a file must be in the folder of the model ({home})"
        )
    return path


def number_in(given: dict[str, str], name: str, usual: int, what: str) -> int:
    text = given.get(name, str(usual))
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise UnreadableModel(f"{what} has the {name} {text[:40]!r} in another file, which is not a number")
    return int(text)
