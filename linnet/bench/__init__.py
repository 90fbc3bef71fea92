"""Benchmarks of speed and memory, relative to other packages and to the limits of the hardware."""
