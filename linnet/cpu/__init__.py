"""Kernels for CPUs: LLVM source from the traced step, compiled by llvmlite and run on torch's threads."""
