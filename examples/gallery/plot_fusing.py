"""
How fusing works: from an equation to machine code
==================================================

You write a unit's equations once, as PyTorch. This page follows LRN from there to the instructions of the
processor on which it was built.
"""

import inspect

import matplotlib.pyplot as plt
import torch

import linnet
from linnet.analysis.kernel_code import kernel

# %%
# 1. The step, as it is written
# -----------------------------

print(inspect.getsource(linnet.LRNCell.step))

# %%
# 2. The operations that torch dispatches
# ---------------------------------------
# Linnet runs the step once on scalars and records the operations. This is the forward pass:

stages = kernel("lrn").split("\n\n")
print(stages[1])

# %%
# Autograd differentiates the same step, and the operations that it dispatches are the backward pass. Nobody
# derives a gradient by hand:

print(kernel("lrn", backward=True).split("\n\n")[1])

# %%
# 3. One loop over time, in LLVM
# ------------------------------
# The operations become the body of one loop over time and channels. Here is the start of a step, the sum
# ``k + h`` and the first lines of its sigmoid. ``<32 x float>`` are 32 channels at once; long lines are cut:


def excerpt(code, found, before, after):
    """Lines of a text around the first one that contains `found`."""
    lines = code.splitlines()
    at = next((number for number, line in enumerate(lines) if found in line), 0)
    return "\n".join(line.expandtabs(4)[:100] for line in lines[max(0, at - before) : at + after])


llvm = kernel("lrn").partition("LLVM:\n")[2]
print(f"{len(llvm.splitlines())} lines of LLVM, among them:\n")
print(excerpt(llvm, "fadd contract <", 3, 11))

# %%
# 4. Machine code
# ---------------
# LLVM compiles it for this processor. Vector instructions process several channels at once (``xmm``: four
# numbers, ``ymm``: eight, ``zmm``: sixteen):

assembly = kernel("lrn", assembly=True).partition("assembly:\n")[2]
vectors = [line for line in assembly.splitlines() if "mm" in line]
print(f"{len(assembly.splitlines())} lines of assembly, {len(vectors)} of them on vectors, among them:\n")
print(excerpt(assembly, "vdivps", 8, 8))

# %%
# 5. The same numbers
# -------------------
# The loop in PyTorch defines the result, and the kernel has to reproduce it: output, state and gradients.

rnn = linnet.LRN(32, 32)
x = torch.randn(40, 4, 32)
with linnet.backend("reference"):
    expected, _ = rnn(x)
found, _ = rnn(x)
print(f"largest difference {(found - expected).abs().max().item():.1e}")

figure, axes = plt.subplots(figsize=(6, 2.5))
axes.plot(expected[:, 0, 0].detach(), linewidth=4, alpha=0.4, label="loop in PyTorch")
axes.plot(found[:, 0, 0].detach(), linewidth=1, label="kernel")
axes.set(xlabel="time step", ylabel="h")
axes.legend()
figure.tight_layout()
plt.show()
