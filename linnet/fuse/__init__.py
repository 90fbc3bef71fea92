"""From a unit's `step`, written once, to fused kernels forward and backward."""
