"""Records one step of a model, like that of a unit, but with its products, and with weights as constants.

What derives from weights alone is computed while the step is recorded. Matrices may be in int8, and may be
block-diagonal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from traceback import walk_tb
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from linnet.base.torch_private import disable_current_modes
from linnet.deploy.step.operations import ADVICE, OF_MODELS, REWRITTEN
from linnet.program import blocks
from linnet.program.graph import Value
from linnet.program.record import StepRecorder, address, is_view, operation
from linnet.program.trace import NotPointwise, user_line
from linnet.program.views import View, whole
from linnet.recurrent.int8 import product as int8_product

# The value of a tensor that is the number of a token: no number to compute with.
TOKEN = "token"


class Scalable(NamedTuple):
    """A product of `size` numbers whose outputs can be scaled and shifted: scaled(scale, shift)."""

    size: int
    scaled: Callable[[Tensor, Tensor], View]


class ModelRecorder(StepRecorder):
    """Records the operations on tensors that derive from those given to `take`; all others are constants."""

    def __init__(self) -> None:
        super().__init__()
        # The scales of the rows of those constants that are int8 matrices.
        self.scales: dict[str, Tensor] = {}
        # By the address of what derives from a weight: that of the weight, whose name it has.
        self.origins: dict[int, int] = {}
        # By the address of what an operation makes and a step cannot read: why.
        self.unreadable: dict[int, str] = {}
        # Set by an operation whose outputs can be scaled at no cost; then known by the name of its result.
        self.scalable: Callable[[Tensor, Tensor], View] | None = None
        self.scalable_products: dict[str, Scalable] = {}
        # The name of the input if it is a token, and the numbers of rows of the embeddings that look it up.
        self.token_name = ""
        self.tokens: set[int] = set()

    @property
    def structural(self) -> Mapping[str, Callable[..., Any]]:
        return OF_MODELS

    def check_known(self, func: Any, tensors: Sequence[Tensor]) -> None:
        for tensor in tensors:
            if address(tensor) in self.unreadable and not is_view(func):
                raise NotPointwise(f"the step reads {self.unreadable[address(tensor)]}{user_line()}")
        self.fixed |= {address(tensor) for tensor in tensors if not self.is_dynamic(tensor)}
        super().check_known(func, tensors)

    def decompose(self, func: Any, args: Any, kwargs: Any) -> Any:
        op = operation(func)
        if op in self.structural:
            result = super().decompose(func, args, kwargs)
            self.note_scalable(result)
            return result
        if op in REWRITTEN:
            with self:
                return REWRITTEN[op](*args, **kwargs)
        try:
            return super().decompose(func, args, kwargs)
        except NotPointwise as error:
            advice = ADVICE.get(op, "")
            raise NotPointwise(
                f"the step uses {func}, which cannot be exported{advice}{user_line()}"
            ) from error

    def note_scalable(self, result: Any) -> None:
        if self.scalable is not None:
            made = self.operand(result)
            self.scalable_products[made.base] = Scalable(made.size, self.scalable)
            self.scalable = None

    def name(self, tensor: Tensor, name: Any) -> None:
        if name is None:
            self.unreadable[address(tensor)] = "where in a tensor a maximum is, which is not exported"
            self.kept.append(tensor)
        else:
            super().name(tensor, name)

    def derived(self, tensor: Tensor, origin: Tensor) -> Tensor:
        """A constant that is computed from a weight, with the name of that weight."""
        self.origins[address(tensor)] = self.origins.get(address(origin), address(origin))
        return self.fixed_tensor(tensor)

    def fixed_tensor(self, tensor: Tensor) -> Tensor:
        self.fixed.add(address(tensor))
        self.kept.append(tensor)
        return tensor

    # -------------------------------------------------------------------------------------- tokens

    def take_token(self, name: str, token: Tensor) -> None:
        """The input is the number of a token: an embedding is a product with its one-hot vector."""
        self.token_name = name
        self.own(token, View(TOKEN, 0, (), ()))

    def is_token(self, value: Tensor) -> bool:
        return self.is_dynamic(value) and self.owners[address(value)][0] == TOKEN

    def one_hot(self, tokens: int) -> View:
        self.tokens.add(tokens)
        return whole(self.token_name, (1, tokens))

    def operand(self, value: Any) -> Any:
        if isinstance(value, Tensor) and self.is_token(value):
            raise NotPointwise(f"the step computes with the number of a token{user_line()}")
        return super().operand(value)

    def is_matrix(self, value: Tensor) -> bool:
        return not self.is_dynamic(value)

    def is_one_number(self, value: Tensor) -> bool:
        # Weights that are equal now are weights.
        return value.numel() == 1

    def named_constant(self, value: Tensor) -> View:
        view = super().named_constant(value)
        # The weight itself, which has a name in the model. Truth values and whole numbers become numbers.
        is_stored = value.dtype in (torch.float32, torch.int8)
        self.constants[view.base] = value.detach() if is_stored else value.detach().float()
        return view

    # ------------------------------------------------------------------------------------ products

    def add_product(self, x: Tensor, matrix: Tensor, bias: Tensor | None) -> View:
        if bias is not None and self.is_dynamic(bias):
            return self.add("add", self.operand(bias), self.add_product(x, matrix, None))
        # A bias of one number, or of one for all outputs, as a vector.
        bias = None if bias is None else bias.expand(matrix.shape[1]).contiguous()
        return self.product_node(self.operand(x), matrix, bias, x.shape[0])

    def product_node(self, x: View, matrix: Tensor, bias: Tensor | None, rows: int, parts: int = 1) -> View:
        operands: list[Value] = [x, self.named_constant(matrix)]
        operands += [] if bias is None else [self.named_constant(bias)]
        return self.node("product", tuple(operands), (rows, matrix.shape[1]), parts=parts)

    @contextmanager
    def recording_products(self) -> Iterator[None]:
        """Within this context, products with int8 or block-diagonal matrices are recorded as products."""
        token = blocks.product_recorder.set(self.whole_product)
        try:
            yield
        finally:
            blocks.product_recorder.reset(token)

    def whole_product(
        self,
        x: Tensor,
        numbers: Tensor,
        scales: Tensor | None,
        bias: Tensor | None,
        heads: int,
        parts: int,
    ) -> Tensor:
        context = copy_context()
        context.run(blocks.product_recorder.set, None)
        with disable_current_modes():
            if scales is None:
                result = context.run(blocks.linear, x, numbers, bias, heads, parts)
            else:
                result = context.run(int8_product, x, numbers, scales, bias, heads, parts)
        view = self.operand(x)
        view = view if view.is_contiguous else self.node("copy", (view,), view.shape)
        rows = x.numel() // x.shape[-1]
        made = self.product_node(view.reshaped((rows, x.shape[-1])), numbers.T, bias, rows, parts)
        if scales is not None:
            node = next(node for node in self.nodes if node.result == made.base)
            self.scales[node.views[1].base] = scales
        self.own(result, made)
        return result


@contextmanager
def naming_module(model: nn.Module) -> Iterator[None]:
    """Within this context, what cannot be recorded names the module in whose forward it is."""
    try:
        yield
    except NotPointwise as error:
        where = path_of_raiser(model, error)
        raise NotPointwise(f"{where}: {error}" if where else str(error)) from error


def path_of_raiser(model: nn.Module, error: Exception) -> str:
    """The path of the innermost module of `model` in whose call an error was raised."""
    # Found in the traceback, not by hooks: a module that has hooks may compute its result in another way.
    paths = {id(module): path for path, module in model.named_modules()}
    callers = [frame.f_locals.get("self") for frame, _ in walk_tb(error.__traceback__)]
    found = (paths.get(id(caller), "") for caller in reversed(callers))
    return next(filter(None, found), "")
