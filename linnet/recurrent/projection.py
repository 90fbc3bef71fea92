"""The projection of the input of a layer to the gates of its unit.

    parts = norm(dropout(prenorm(x)) W) + b        then split by name

One product computes all gates for all time steps: this is the part of a unit that does not depend on
the state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.types import Device

from linnet.base.options import check_rate, check_size, choose
from linnet.program import blocks
from linnet.program.unit import CannotFuse, Int8Linear, Linear, Norm, Norms, Operation, Shift
from linnet.recurrent.masks import keep_mask, over_time
from linnet.run.hooks import has_hooks
from linnet.run.linear import linear

# The LRN authors' value, on the joint projection of all gates.
NORM_EPS = 1e-8
# torch's own value, which the SRU authors keep for the norm of a layer's input.
PRENORM_EPS = 1e-5


def norm_layer(
    option: str,
    kind: str | None,
    size: int,
    eps: float,
    device: Device = None,
    dtype: torch.dtype | None = None,
) -> nn.Module:
    """None, standard layer norm, or the norm by root mean square that the LRN authors call layer norm."""
    choose(option, kind, (None, "layer", "rms"))
    if kind is None:
        return nn.Identity()
    norm = nn.LayerNorm if kind == "layer" else nn.RMSNorm
    return norm(size, eps=eps, device=device, dtype=dtype)


class GroupNorms(nn.Module):
    """A norm for each of several groups of channels, which have these sizes and lie side by side."""

    def __init__(
        self,
        kind: str,
        sizes: Sequence[int],
        eps: float,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        self.sizes = list(sizes)
        self.norms = nn.ModuleList(norm_layer("norm", kind, size, eps, device, dtype) for size in sizes)

    def forward(self, x: Tensor) -> Tensor:
        groups = zip(self.norms, x.split(self.sizes, -1), strict=True)
        return torch.cat([norm(group) for norm, group in groups], -1)


def norm_of_state(norm_on: str, norm: str | None) -> str | None:
    """The norm of products with the state, for the cells that have the option norm_on."""
    choose("norm_on", norm_on, ("input", "all"))
    return norm if norm_on == "all" else None


def norms_of(module: nn.Module) -> list[Norms]:
    """Return the operation of a module made by `norm_layer` or of GroupNorms."""
    if type(module) is nn.Identity:
        return []
    return [Norms([norm_of(each) for each in (module.norms if type(module) is GroupNorms else [module])])]


def norm_of(module: nn.Module) -> Norm:
    if type(module) is nn.LayerNorm and module.weight is not None and module.bias is not None:
        return Norm(module.weight, module.bias, module.eps)
    if type(module) is nn.RMSNorm and module.weight is not None and module.eps is not None:
        return Norm(module.weight, None, module.eps)
    raise CannotFuse(f"kernels do not know the norm {module}")


class Projection(nn.Module):
    """x [..., input_size] -> {name: [..., size]} for each of `parts`.

    biased   names of the parts that have a bias (True: all, False: none); they must come last
    rank     W = P Q through `rank` dimensions (0: a full matrix)

    norm_groups   the sizes of groups of parts with a norm of their own (None: one norm for all)
    input_heads   W is block-diagonal: the input and each part are cut into this many heads, and head k of
                  the input makes head k of each part. `weight` is then [sum of sizes, input_size / heads]:
                  each row has the numbers for the head that it reads
    """

    # The names of the parameters, which a subclass can change.
    weight_name: ClassVar[str] = "weight"
    bias_name: ClassVar[str] = "bias"
    weight: Tensor
    bias: Tensor | None
    # Of two biases that are added, the last numbers of the second that are not.
    apart: int = 0

    def __init__(
        self,
        input_size: int,
        parts: Mapping[str, int],
        biased: Sequence[str] | bool = False,
        *,
        rank: int = 0,
        norm: str | None = None,
        norm_groups: Sequence[int] | None = None,
        input_heads: int = 1,
        prenorm: str | None = None,
        input_dropout: float = 0.0,
        device: Device = None,
        dtype: torch.dtype | None = None,
        **unknown: Any,
    ):
        super().__init__()
        if unknown:
            raise TypeError(
                f"there is no option {next(iter(unknown))!r}; "
                "all cells take norm, prenorm, input_heads and input_dropout, and the options of their paper"
            )
        check_rate("input_dropout", input_dropout)
        check_size("rank", rank, least=0)
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        names = list(parts) if biased is True else list(biased or ())
        if list(parts)[len(parts) - len(names) :] != names:
            raise ValueError(f"the biased parts {names} must be the last of {list(parts)}")
        check_heads(input_heads, {"the input": rank or input_size, **parts})
        self.parts, self.heads = dict(parts), input_heads
        self.input_dropout = input_dropout
        size = sum(parts.values())
        biases = sum(parts[name] for name in names)
        self.prenorm = norm_layer("prenorm", prenorm, input_size, PRENORM_EPS, **where)
        self.reduce = nn.Parameter(torch.empty(rank, input_size, **where)) if rank else None
        self.register_parameter(
            self.weight_name, nn.Parameter(torch.empty(size, (rank or input_size) // input_heads, **where))
        )
        self.norm = (
            norm_layer("norm", norm, size, NORM_EPS, **where)
            if norm is None or norm_groups is None
            else GroupNorms(norm, norm_groups, NORM_EPS, **where)
        )
        self.register_parameter(
            self.bias_name, nn.Parameter(torch.empty(biases, **where)) if biases else None
        )

    def forward(self, x: Tensor, inside: Callable[[], Any] | None = None) -> Any:
        """x -> the parts by name. `inside`: call this instead; see linnet.recurrent.adapters."""
        return self.split(self.joint(x)) if inside is None else inside()

    def joint(self, x: Tensor) -> Tensor:
        """All parts side by side, [..., sum of sizes]."""
        return self.affine(self.prepare(x))

    def prepare(self, x: Tensor) -> Tensor:
        """x as the matrix reads it."""
        x = self.prenorm(x)
        if self.training and self.input_dropout:
            x = x * keep_mask(over_time(x, x.shape[-1]), self.input_dropout, like=x)
        return x if self.reduce is None else linear(x, self.reduce)

    def affine(self, x: Tensor) -> Tensor:
        """norm(x W) + b; without a norm, one operation for the product and the bias."""
        bias = self.whole_bias()
        if self.is_plain:
            return self.multiply(x, bias)
        x = self.norm(self.multiply(x))
        return x if bias is None else x + bias

    def multiply(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """x W + b, with the dense or the block-diagonal matrix."""
        if self.heads == 1:
            return linear(x, self.weight, bias)
        return blocks.linear(x, self.weight, bias, self.heads, list(self.parts.values()))

    @property
    def bias_tensors(self) -> list[Tensor]:
        """The tensors that `bias` is computed from: itself, in most units."""
        return [] if self.bias is None else [self.bias]

    @property
    def total_size(self) -> int:
        """The size of all parts together."""
        return sum(self.parts.values())

    @property
    def example(self) -> Tensor:
        """A tensor with the device and the dtype of the projection."""
        return self.weight

    @property
    def is_plain(self) -> bool:
        """Whether kernels may compute it from `weight`, as a single product."""
        return self.is_product

    @property
    def is_product(self) -> bool:
        """Whether this is a single matrix product, without a norm."""
        return isinstance(self.norm, nn.Identity) and not has_hooks(self.norm)

    @property
    def is_bare(self) -> bool:
        """Whether this is a matrix product of its input, and a bias, and nothing else."""
        drops = self.training and self.input_dropout
        has_prenorm = not isinstance(self.prenorm, nn.Identity)
        return self.is_product and self.reduce is None and not has_prenorm and not drops

    def operations(self) -> list[Operation]:
        """Return the operations of `joint`, for kernels that compute them without calling modules."""
        if self.training and self.input_dropout:
            raise CannotFuse("input_dropout draws a mask for each sequence")
        listed: list[Operation] = [*norms_of(self.prenorm)]
        if self.reduce is not None:
            listed.append(self.product("reduce"))
        shifts = self.shifts()
        if self.is_product and shifts:
            return [*listed, self.product()._replace(bias=shifts[0].bias), *shifts[1:]]
        return [*listed, self.product(), *norms_of(self.norm), *shifts]

    def shifts(self) -> list[Shift]:
        """The sums with its biases."""
        return [] if self.bias is None else [Shift(self.bias)]

    def product(self, name: str = "weight") -> Linear | Int8Linear:
        """The product with one of its matrices, without a bias."""
        return Linear(getattr(self, name), None, *self.cut(name))

    def cut(self, name: str = "weight") -> tuple[int, tuple[int, ...]]:
        """The heads and the parts of one of its matrices; `reduce` has one of each."""
        return (self.heads, tuple(self.parts.values())) if name == "weight" else (1, ())

    def whole_bias(self) -> Tensor | None:
        """Return the bias with zeros for the parts that have none."""
        if self.bias is None or len(self.bias) == self.total_size:
            return self.bias
        return F.pad(self.bias, (self.total_size - len(self.bias), 0))

    def split(self, x: Tensor) -> dict[str, Tensor]:
        return dict(zip(self.parts, x.split(list(self.parts.values()), dim=-1), strict=True))

    def part(self, name: str) -> slice:
        """The rows of `weight` that make the part `name`."""
        names = list(self.parts)
        start = sum(self.parts[before] for before in names[: names.index(name)])
        return slice(start, start + self.parts[name])

    def weight_of(self, name: str) -> Tensor:
        return self.weight[self.part(name)]

    def blocks_of(self, name: str) -> tuple[Tensor, ...]:
        """The matrix of each head of a part; with one head, that of the part."""
        return self.weight_of(name).chunk(self.heads)

    def dense_weight(self) -> Tensor:
        """The matrix [sum of sizes, input_size], with the zeros between the blocks."""
        return blocks.dense(self.weight, self.heads, list(self.parts.values()))

    def bias_of(self, name: str) -> Tensor:
        return self.biases()[name]

    @property
    def biased_parts(self) -> list[str]:
        """The names of the parts that have a bias."""
        unbiased = self.total_size - (0 if self.bias is None else len(self.bias))
        starts = accumulate(self.parts.values(), initial=0)
        return [name for name, start in zip(self.parts, starts, strict=False) if start >= unbiased]

    def biases(self) -> dict[str, Tensor]:
        """The bias of each part that has one."""
        names = self.biased_parts
        if self.bias is None:
            return {}
        if len(names) == 1:
            return {names[0]: self.bias}
        starts = accumulate((self.parts[name] for name in names), initial=0)
        return {n: self.bias[at : at + self.parts[n]] for n, at in zip(names, starts, strict=False)}

    def extra_repr(self) -> str:
        heads = [f"heads={self.heads}"] if self.heads > 1 else []
        return ", ".join([*(f"{name}={size}" for name, size in self.parts.items()), *heads])


def check_heads(heads: int, sizes: Mapping[str, int]) -> None:
    """Raise unless everything of these sizes can be cut into `heads` heads."""
    check_size("the number of heads", heads)
    for name, size in sizes.items():
        if size % heads:
            raise ValueError(
                f"a product of {heads} heads cuts its input and each of its parts into {heads} equal pieces, "
                f"and {name} has {size} channels; choose a number of heads that divides {size}"
            )
