"""From a unit's `step`, written once, to the program that all kernels are written from."""
