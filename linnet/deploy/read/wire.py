"""A look at the encoded bytes of a protobuf message before it is parsed.

An empty node is two bytes of a file and hundreds of bytes when it is parsed, and a list of small numbers
grows eightfold. So this counts the fields first, and refuses a file whose parsed form exceeds the limit.
"""

from __future__ import annotations

from typing import Any

from linnet.deploy.read.errors import UnreadableModel

FIELD = 256
"""Bytes that a parsed field takes at most, besides its content."""
FIELDS = 2_000_000
"""The most fields of a file: counting them takes seconds."""
DEPTH = 64
"""The most levels of messages; eight levels of subgraphs have less than forty."""
VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5


def check_size(data: bytes, descriptor: Any, limit: int) -> None:
    """Raise if the parsed message could take more than `limit` bytes.

    descriptor   of the message type, as in ModelProto.DESCRIPTOR
    """
    need = 2 * len(data)
    fields = 0
    pending = [(0, len(data), descriptor, 0)]
    while pending:
        start, end, kind, depth = pending.pop()
        while start < end:
            number, wire, start = tag_at(data, start, end)
            first, start = content_at(data, start, end, wire)
            fields += 1
            inner = kind.fields_by_number.get(number)
            if wire == DELIMITED and inner is not None and inner.message_type is not None:
                pending.append((first, start, inner.message_type, depth + 1))
            elif wire == DELIMITED and inner is not None and inner.cpp_type < inner.CPPTYPE_STRING:
                need += 8 * (start - first)
            refuse(need + FIELD * fields > limit, "takes more memory than the limit when it is parsed")
            refuse(fields > FIELDS, f"has more than {FIELDS:,} fields")
        refuse(depth > DEPTH, f"has messages nested more than {DEPTH} deep")


def refuse(wrong: bool, reason: str) -> None:
    if wrong:
        raise UnreadableModel(f"the file {reason}")


def tag_at(data: bytes, start: int, end: int) -> tuple[int, int, int]:
    """The number and the wire type of the field at `start`, and where its content starts."""
    tag, start = varint_at(data, start, end)
    return tag >> 3, tag & 7, start


def content_at(data: bytes, start: int, end: int, wire: int) -> tuple[int, int]:
    """Where the content of a field starts and ends."""
    if wire == VARINT:
        return start, varint_at(data, start, end)[1]
    if wire == DELIMITED:
        length, start = varint_at(data, start, end)
        stop = start + length
    else:
        refuse(wire not in (FIXED64, FIXED32), "is damaged: it is not a protobuf message")
        stop = start + (8 if wire == FIXED64 else 4)
    refuse(stop > end, "is cut short, or it is not a protobuf message")
    return start, stop


def varint_at(data: bytes, start: int, end: int) -> tuple[int, int]:
    """The number at `start`, seven bits in a byte, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        refuse(start >= end, "is cut short, or it is not a protobuf message")
        byte = data[start]
        start += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, start
    raise UnreadableModel("the file is damaged: it is not a protobuf message")
