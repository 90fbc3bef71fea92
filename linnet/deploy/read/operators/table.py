"""All operators that Linnet reads."""

from __future__ import annotations

from linnet.deploy.read import aten as _aten  # noqa: F401, fills the table
from linnet.deploy.read.call import OPERATORS as OPERATORS
from linnet.deploy.read.operators import elementwise as _elementwise  # noqa: F401
from linnet.deploy.read.operators import products as _products  # noqa: F401
from linnet.deploy.read.operators import quantised as _quantised  # noqa: F401
from linnet.deploy.read.operators import recurrent as _recurrent  # noqa: F401
from linnet.deploy.read.operators import reductions as _reductions  # noqa: F401
from linnet.deploy.read.operators import shapes as _shapes  # noqa: F401
from linnet.deploy.read.operators import torch_recurrent as _torch_recurrent  # noqa: F401

IF, THEN, ELSE = "If", "then_branch", "else_branch"
CONTROL = (IF,)
"""Operators with graphs in them, which the interpreter runs itself."""
