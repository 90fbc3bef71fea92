"""From a unit's `step`, written once, to fused kernels forward and backward."""

# Imported first: a fork waits for imports of Linnet from now on.
from linnet.fuse import forks as _forks  # noqa: F401
