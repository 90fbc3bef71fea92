"""Errors about tensors that do not fit. Like torch's own, they can be caught as RuntimeError."""

from __future__ import annotations


class InputError(ValueError, RuntimeError):
    """A tensor of the wrong shape, or on the wrong device."""


class InputTypeError(TypeError, RuntimeError):
    """A tensor of the wrong dtype, or a state of another kind."""
