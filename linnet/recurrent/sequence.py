"""Sequences of different lengths: padded with lengths or a mask, or packed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from linnet.base.torch_private import FakeTensor
from linnet.program.padding import FEW_SEQUENCES, Padding
from linnet.run.choose import may_use_cpu_kernel
from linnet.run.kept_states import is_collecting


def mask_of_lengths(lengths: Tensor | Sequence[int], like: Tensor, least: int = 1) -> Tensor:
    """Return a mask [T, B] for `like` [T, B, D], True at the steps within the length of their sequence.

    least   the length of the shortest sequence that is allowed
    """
    return mask_within(checked_lengths(lengths, like, least), like)


def mask_within(lengths: Tensor, like: Tensor) -> Tensor:
    return torch.arange(like.shape[0], device=like.device)[:, None] < lengths


def checked_lengths(lengths: Tensor | Sequence[int], like: Tensor, least: int = 1) -> Tensor:
    """The lengths [B] of the sequences `like` [T, B, D], on its device."""
    time, batch = like.shape[:2]
    try:
        # On the CPU, where the values are checked, whatever the default device is.
        lengths = lengths if isinstance(lengths, Tensor) else torch.as_tensor(lengths, device="cpu")
    except (TypeError, ValueError) as error:
        raise TypeError(f"lengths must be whole numbers, one for each sequence; got {lengths!r}") from error
    whole = not (lengths.dtype.is_floating_point or lengths.dtype == torch.bool or lengths.dtype.is_complex)
    if lengths.numel() and not whole:  # an empty list has torch's default dtype
        raise TypeError(f"lengths must be whole numbers; got {lengths.dtype}")
    if tuple(lengths.shape) != (batch,):
        raise ValueError(
            f"lengths must have shape ({batch},), one for each sequence; got {tuple(lengths.shape)}"
        )
    # Tensors in a graph that is being traced have no values to check.
    if not (torch.compiler.is_compiling() or is_unknown(lengths)):
        check_range(lengths, least, time)
    return lengths.to(like.device)


def mask_for(lengths: Tensor | None, like: Tensor) -> Tensor | None:
    """Return `mask_of_lengths`, or None if there are no lengths, as then there is no padding."""
    return None if lengths is None else mask_of_lengths(lengths, like)


def is_unknown(lengths: Tensor) -> bool:
    """Return whether a tensor has a shape but no values."""
    return lengths.is_meta or isinstance(lengths, FakeTensor)


def check_range(lengths: Tensor, least: int, time: int) -> None:
    if not len(lengths):
        return
    shortest, longest = map(int, lengths.aminmax())
    if shortest < least or longest > time:
        wrong = lengths[(lengths < least) | (lengths > time)]
        raise ValueError(
            f"lengths must be between {least} and {time}, the number of time steps of x; got {int(wrong[0])}"
        )


def are_flags(flags: Any, shape: Sequence[int], device: torch.device) -> bool:
    """Whether `check_flags` has no objection, and the flags are a plain tensor."""
    if type(flags) is not Tensor or flags.dtype is not torch.bool or flags.layout is not torch.strided:
        return False
    return flags.shape == shape and flags.device == device


def check_flags(what: str, flags: Tensor, shape: tuple[int, ...], layout: str, device: torch.device) -> None:
    """Raise unless a mask or resets are booleans, one for each time step of each sequence."""
    if not isinstance(flags, Tensor) or flags.dtype != torch.bool:
        got = flags.dtype if isinstance(flags, Tensor) else type(flags).__name__
        raise TypeError(f"{what} must be a bool tensor; got {got}")
    if tuple(flags.shape) != shape:
        raise ValueError(f"{what} must be {layout} of shape {shape}, as x; got {tuple(flags.shape)}")
    if flags.device != device:
        raise ValueError(f"{what} is on {flags.device}, but x is on {device}; move it with .to(device)")


def are_full(lengths: Tensor | None, steps: int) -> bool:
    """Whether no step is padded."""
    return lengths is not None and lengths.numel() > 0 and int(lengths.min()) == steps


def padding_for(mask: Tensor, lengths: Tensor | None) -> Padding | None:
    """How CPU kernels skip padded steps; None if they read the mask instead."""
    steps, batch = mask.shape
    if steps == 1 or batch <= FEW_SEQUENCES or is_collecting():
        return None
    padding = Padding(mask, lengths if lengths is None else lengths.long())
    return padding if padding.count else None


def padding_of_packed(packed: PackedSequence) -> Padding | None:
    """`padding_for` of sequences that are packed already."""
    sizes = packed.batch_sizes
    if not len(sizes) or not may_use_cpu_kernel(packed.data):
        return None
    mask = torch.arange(int(sizes[0]), device="cpu") < sizes[:, None]
    return padding_for(mask, mask.sum(0))


def unpack(packed: PackedSequence, padding: Padding | None) -> tuple[Tensor, Tensor]:
    """Return the padded sequences [T, B, D] and their mask, in the packed (sorted) order."""
    if padding is not None:
        return padding.take(packed.data[:, None]), padding.mask
    padded, lengths = pad_packed_sequence(PackedSequence(packed.data, packed.batch_sizes))
    return padded, mask_of_lengths(lengths, like=padded)


def repack(x: Tensor, like: PackedSequence, padding: Padding | None) -> PackedSequence:
    """The inverse of `unpack`, with the batch sizes and the order of `like`."""
    if padding is not None:
        data = padding.pack(x)[:, 0]
    else:
        data = torch.cat([x[t, :size] for t, size in enumerate(like.batch_sizes.tolist())])
    return PackedSequence(data, like.batch_sizes, like.sorted_indices, like.unsorted_indices)


def last_outputs(y: Tensor, before: Sequence[Tensor], mask: Tensor | None) -> list[Tensor]:
    """The output of each direction [B, size] at the last step that it has read; `before` if it has read none.

    y [T, B, directions * size]; a second direction reads backwards.
    """
    ways = zip(y.chunk(len(before), -1), before, (False, True), strict=False)
    if mask is None:
        return [part[0] if reverse else part[-1] for part, _, reverse in ways]
    steps = torch.arange(1, len(y) + 1, device=y.device)[:, None]
    real = {False: (steps * mask).amax(0), True: ((len(y) + 1 - steps) * mask).amax(0)}
    found = []
    for part, old, reverse in ways:
        count = real[reverse]
        place = (len(y) - count if reverse else count - 1).clamp(0, len(y) - 1)
        last = part.gather(0, place[None, :, None].expand(1, -1, part.shape[-1]))[0]
        found.append(torch.where(count[:, None] > 0, last, old))
    return found
