"""How a unit runs: the choice between five ways, what is decided once, and the scan with its gradients."""

# A fork waits for the threads that compile, from the first import on.
from linnet.base import forks as _forks  # noqa: F401
