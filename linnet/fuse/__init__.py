"""From a unit's `step`, written once, to fused kernels forward and backward."""

# From the first import on: forks wait for imports of ours, too.
from linnet.fuse import forks as _forks  # noqa: F401
