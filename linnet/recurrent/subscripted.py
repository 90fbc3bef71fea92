"""Units in annotations with the type of their state, as linnet/units/__init__.pyi describes them.

linnet.SRU[tuple[Tensor, Tensor]] is an SRU that was built with as_lstm=True.
"""

from __future__ import annotations

from types import GenericAlias
from typing import TYPE_CHECKING


class Subscripted:
    """A class that can be subscripted at run time, too, where the subscript changes nothing."""

    if not TYPE_CHECKING:
        __class_getitem__ = classmethod(GenericAlias)
