"""Records one step of a model, like that of a unit, but with its products, and with weights as constants.

What derives from weights alone is computed while the step is recorded. Matrices may be in int8, and may be
block-diagonal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any

from torch import Tensor

from linnet.base.torch_private import disable_current_modes
from linnet.program import blocks
from linnet.program.graph import Value
from linnet.program.record import STRUCTURAL, StepRecorder, address, operation
from linnet.program.trace import NotPointwise, user_line
from linnet.program.views import View
from linnet.recurrent.int8 import product as int8_product


class ModelRecorder(StepRecorder):
    """Records the operations on tensors that derive from those given to `take`; all others are constants."""

    def __init__(self) -> None:
        super().__init__()
        # The scales of the rows of those constants that are int8 matrices.
        self.scales: dict[str, Tensor] = {}

    def check_known(self, func: Any, tensors: Sequence[Tensor]) -> None:
        self.fixed |= {address(tensor) for tensor in tensors if not self.is_dynamic(tensor)}
        super().check_known(func, tensors)

    def decompose(self, func: Any, args: Any, kwargs: Any) -> Any:
        if operation(func) in STRUCTURAL:
            return super().decompose(func, args, kwargs)
        try:
            return super().decompose(func, args, kwargs)
        except NotPointwise as error:
            raise NotPointwise(f"the step uses {func}, which cannot be exported{user_line()}") from error

    def is_matrix(self, value: Tensor) -> bool:
        return not self.is_dynamic(value)

    def is_one_number(self, value: Tensor) -> bool:
        # Weights that are equal now are weights.
        return value.numel() == 1

    def named_constant(self, value: Tensor) -> View:
        view = super().named_constant(value)
        # The weight itself, which has a name in the model.
        self.constants[view.base] = value.detach()
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
