"""Kernels for GPUs: Triton source from the traced step, and how it is launched."""
