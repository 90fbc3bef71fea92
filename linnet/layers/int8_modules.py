"""Modules with int8 matrices, by which `linnet.quantize` replaces those of a model.

Each matrix `weight` [N, K] becomes two buffers, `weight_int8` [N, K] and `weight_scale` [N]; `weight` remains
as a property, the float32 matrix that they stand for. With activations=True, products also round their input
to int8, and run by kernels on the CPU; otherwise they are those of float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linnet.layers.embedding import WordEmbedding
from linnet.layers.softmax import FullSoftmax, MixtureSoftmax
from linnet.layers.torch_names import READERS, TorchProjection
from linnet.program import blocks
from linnet.program.unit import Int8Linear as Int8Product
from linnet.program.unit import Linear
from linnet.recurrent.int8 import dequantised, product, quantised
from linnet.recurrent.projection import Projection
from linnet.run.change import Originals
from linnet.run.choose import may_use_cpu_kernel

if TYPE_CHECKING:
    from linnet.cpu.int8 import Int8Blocks, Int8Panels


Operations = Linear | Int8Product
NO_TRAINING = (
    "a quantised model cannot be trained: rounding to int8 has no gradient. Train the model in float32 and "
    "quantise it afterwards"
)


class Int8Matrix:
    """An int8 matrix of a module, packed for the kernel when it is first used.

    heads, parts   of a block-diagonal matrix: see program/blocks.py
    """

    def __init__(
        self,
        numbers: Tensor,
        scales: Tensor,
        activations: bool,
        heads: int = 1,
        parts: tuple[int, ...] = (),
    ):
        self.numbers, self.scales, self.activations = numbers, scales, activations
        self.heads, self.parts = heads, parts
        self.originals = Originals((numbers, scales))
        self.packed: Int8Panels | Int8Blocks | None = None
        self.float32: Tensor | None = None

    def is_of(self, numbers: Tensor, scales: Tensor) -> bool:
        """Whether this is made of these tensors, as they are now."""
        return self.numbers is numbers and self.scales is scales and self.originals.hold()

    def panels(self) -> Int8Panels | Int8Blocks:
        if self.packed is None:
            # Imported when first needed: it needs llvmlite.
            from linnet.cpu.int8 import Int8Blocks, Int8Panels

            whole = self.heads == 1
            self.packed = (
                Int8Panels(self.numbers, self.scales)
                if whole
                else Int8Blocks(self.numbers, self.scales, self.heads, self.parts)
            )
        return self.packed

    def dense(self) -> Tensor:
        """The matrix in float32. Products of float32 read it at each call, so they keep it."""
        if self.activations:
            return dequantised(self.numbers, self.scales)
        if self.float32 is None:
            self.float32 = dequantised(self.numbers, self.scales)
        return self.float32

    def operation(self, bias: Tensor | None = None) -> Operations:
        """The product, for kernels that run a whole step."""
        if self.activations:
            return Int8Product(self.panels(), bias)
        return Linear(self.dense(), bias, self.heads, self.parts)

    def linear(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """x [..., K] -> [..., N]; `bias` is that of the last columns."""
        refuse_gradients(x)
        if bias is not None and len(bias) < len(self.numbers):
            bias = F.pad(bias, (len(self.numbers) - len(bias), 0))
        if not self.activations:
            return blocks.linear(x, self.dense(), bias, self.heads, self.parts)
        if x.device.type == "cpu" and x.dtype == torch.float32 and may_use_cpu_kernel(x):
            rows = x.reshape(-1, x.shape[-1])
            return self.panels().times(rows, bias).view(*x.shape[:-1], len(self.numbers))
        if len(set(self.parts)) <= 1:
            return product(x, self.numbers, self.scales, bias, self.heads, len(self.parts) or 1)
        parts = zip(self.numbers.split(self.parts), self.scales.split(self.parts), strict=True)
        made = torch.cat([product(x, numbers, scales, None, self.heads) for numbers, scales in parts], -1)
        return made if bias is None else made + bias


def refuse_gradients(x: Tensor) -> None:
    if torch.is_grad_enabled() and x.requires_grad:
        raise RuntimeError(f"{NO_TRAINING}, or run this within torch.no_grad()")


class Quantised(nn.Module):
    """A module with int8 matrices. Its attributes are those of the module that it replaces."""

    activations: bool
    # Kernels read packed copies of its tensors; see run/change.py.
    keeps_copies = True

    def take(self, module: nn.Module, names: tuple[str, ...], activations: bool) -> None:
        """Take over everything of `module`, with the matrices `names` in int8."""
        nn.Module.__init__(self)
        own = {name: value for name, value in vars(module).items() if name not in vars(self)}
        self.__dict__.update(own)
        self.training, self.activations = False, activations
        self.forget()
        for name, child in module.named_children():
            self.add_module(name, child)
        for name, tensor in {**parameters_of(module), **module._buffers}.items():
            if tensor is None or name not in names:
                self.register_buffer(f"{name}_int8" if name in names else name, own_tensor(tensor))
            else:
                self.set_matrix(name, tensor.detach())
        for name in names:
            if f"{name}_int8" not in self._buffers:
                self.register_buffer(f"{name}_int8", None)

    def set_matrix(self, name: str, matrix: Tensor) -> None:
        numbers, scales = quantised(matrix)
        self.register_buffer(f"{name}_int8", numbers)
        # A parameter, so that a quantised model has some: they tell its device and its dtype.
        self.register_parameter(f"{name}_scale", nn.Parameter(scales, requires_grad=False))

    def matrix(self, name: str = "weight") -> Int8Matrix:
        """The matrix `name`. It is made again if one of its tensors has been replaced or changed."""
        numbers, scales = self._buffers[f"{name}_int8"], self._parameters[f"{name}_scale"]
        assert numbers is not None
        assert scales is not None
        kept = self.made.get(name)
        if kept is None or not kept.is_of(numbers, scales):
            kept = self.made[name] = Int8Matrix(numbers, scales, self.activations, *self.cut(name))
        return kept

    def cut(self, name: str = "weight") -> tuple[int, tuple[int, ...]]:
        """The heads and the parts of a matrix."""
        return 1, ()

    def used(self, name: str = "weight") -> Int8Matrix:
        """The matrix `name`, to compute with."""
        if self.training:
            raise RuntimeError(f"{NO_TRAINING}; to run it, call model.eval()")
        return self.matrix(name)

    @property
    def weight(self) -> Any:
        return self.dense("weight")

    @weight.setter
    def weight(self, value: Any) -> None:
        raise AttributeError(f"the weights of {type(self).__name__} are weight_int8 and weight_scale")

    def dense(self, name: str) -> Tensor | None:
        return None if self._buffers[f"{name}_int8"] is None else self.matrix(name).dense()

    def forget(self) -> None:
        """Make the matrices again. What was prepared for a step sees the new object."""
        self.made: dict[str, Int8Matrix] = {}

    def _load_from_state_dict(self, *arguments: Any) -> None:
        super()._load_from_state_dict(*arguments)
        self.forget()

    def _apply(self, *arguments: Any, **named: Any) -> Any:
        self.forget()
        return super()._apply(*arguments, **named)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "made": {}}

    def extra_repr(self) -> str:
        before = super().extra_repr()
        what = "int8" if self.activations else "int8 weights"
        return f"{before}, {what}" if before else what


def parameters_of(module: nn.Module) -> dict[str, Any]:
    """The parameters of a module. The matrices of LSTM, GRU and RNN have torch's names and two biases."""
    if not isinstance(module, TorchProjection):
        return module._parameters
    others = {name: tensor for name, tensor in module._parameters.items() if name not in READERS}
    return {**others, "weight": module.weight, "bias": module.bias}


def own_tensor(tensor: Tensor | None) -> Tensor | None:
    if tensor is None:
        return None
    # torch does not count the changes of an inference tensor.
    return tensor.clone() if tensor.is_inference() else tensor.detach()


class Int8Linear(Quantised, nn.Linear):
    """nn.Linear in int8."""

    def __init__(self, module: nn.Linear, activations: bool):
        self.take(module, ("weight",), activations)

    def forward(self, x: Tensor) -> Tensor:
        return self.used().linear(x, self.bias)

    def operation(self) -> Operations:
        return self.used().operation(self.bias)


class Int8Embedding(Quantised, nn.Embedding):
    """nn.Embedding in int8."""

    def __init__(self, module: nn.Embedding, activations: bool):
        self.take(module, ("weight",), activations)

    def forward(self, tokens: Tensor) -> Tensor:
        matrix = self.used()
        return dequantised(F.embedding(tokens, matrix.numbers), matrix.scales[tokens])


class Int8WordEmbedding(Int8Embedding, WordEmbedding):
    """WordEmbedding in int8: all of its vectors together, whether they were trained or not."""

    def __init__(self, module: WordEmbedding, activations: bool):
        rows = module.rows()
        self.take(module, ("weight",), activations)
        self.set_matrix("weight", rows)
        self.register_buffer("special", None)

    def extra_repr(self) -> str:
        return f"{self.words}, {self.size}, int8"


class Int8Projection(Quantised, Projection):
    """Projection in int8."""

    def __init__(self, module: Projection, activations: bool):
        self.take(module, ("weight", "reduce"), activations)

    @property
    def reduce(self) -> Any:  # type: ignore[override]
        return self.dense("reduce")

    @property
    def example(self) -> Tensor:
        return self.weight_scale  # type: ignore[return-value]

    @property
    def is_plain(self) -> bool:
        """Whether kernels of float32 may read the matrix."""
        return not self.activations and self.is_product

    def cut(self, name: str = "weight") -> tuple[int, tuple[int, ...]]:
        return Projection.cut(self, name)

    def product(self, name: str = "weight") -> Operations:
        return self.used(name).operation()

    def prepare(self, x: Tensor) -> Tensor:
        x = self.prenorm(x)
        return x if self.reduce_int8 is None else self.used("reduce").linear(x)

    def affine(self, x: Tensor) -> Tensor:
        if self.is_product:
            return self.used().linear(x, self.bias)
        x, bias = self.norm(self.used().linear(x)), self.whole_bias()
        return x if bias is None else x + bias


class Int8FullSoftmax(Quantised, FullSoftmax):
    """FullSoftmax in int8; `tied` is then the Int8Matrix of the embedding."""

    def __init__(self, module: FullSoftmax, activations: bool):
        self.take(module, ("weight",), activations)

    def logits(self, x: Tensor, tied: Any = None) -> Tensor:
        if tied is None:
            return self.used().linear(x, self.bias)
        if not self.free:
            return times(tied, x, self.bias)
        own, shared = x.split([self.free, self.tied_size], -1)
        return self.used().linear(own, self.bias) + times(tied, shared)

    def loss(self, x: Tensor, targets: Tensor, tied: Any = None) -> Tensor:
        return mean_nll(self.log_probs(x, tied), targets)


class Int8MixtureSoftmax(Quantised, MixtureSoftmax):
    """MixtureSoftmax in int8; its linear layers are modules of their own."""

    def __init__(self, module: MixtureSoftmax, activations: bool):
        self.take(module, ("weight",), activations)

    def decode(self, latent: Tensor, tied: Any) -> Tensor:
        own = self._buffers["weight_int8"] is not None
        return self.used().linear(latent, self.bias) if own else times(tied, latent, self.bias)

    def loss(self, x: Tensor, targets: Tensor, tied: Any = None) -> Tensor:
        return mean_nll(self.log_probs(x, tied), targets)


def times(matrix: Int8Matrix | Tensor, x: Tensor, bias: Tensor | None = None) -> Tensor:
    """The product with a matrix that may be quantised: that of an embedding may have been skipped."""
    return matrix.linear(x, bias) if isinstance(matrix, Int8Matrix) else F.linear(x, matrix, bias)


def mean_nll(log_probs: Tensor, targets: Tensor) -> Tensor:
    """The mean of -log p over the targets that are counted."""
    counted = (targets >= 0).sum().clamp(min=1)
    return F.nll_loss(log_probs.flatten(0, -2), targets.flatten(), reduction="sum") / counted
