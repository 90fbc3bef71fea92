"""
Speed on this machine
=====================

The time of a training step of each unit, relative to ``nn.LSTM`` of the same size. The modules take turns,
and we compare medians: on a busy machine the ratios are more reliable than the times.
"""

import statistics
import time

import matplotlib.pyplot as plt
import torch

import linnet

SIZE, STEPS, BATCH, ROUNDS = 128, 64, 16, 7
NAMES = ("sru", "lrn", "qrnn", "ran", "atr", "gru", "lstm")

modules = {"nn.LSTM": torch.nn.LSTM(SIZE, SIZE), **{name: linnet.UNITS[name](SIZE, SIZE) for name in NAMES}}
x = torch.randn(STEPS, BATCH, SIZE)


def seconds(module):
    start = time.perf_counter()
    module(x)[0].sum().backward()
    return time.perf_counter() - start


# %%
# The first call compiles the kernels.

for module in modules.values():
    seconds(module)

times = {name: [] for name in modules}
for _ in range(ROUNDS):
    for name, module in modules.items():
        times[name].append(seconds(module))
medians = {name: statistics.median(each) for name, each in times.items()}
ratios = {name: medians[name] / medians["nn.LSTM"] for name in NAMES}

# %%
# One layer, 64 steps, 16 sequences, 128 channels:

for name, ratio in ratios.items():
    print(f"{name:5} {ratio:.2f}")

figure, axes = plt.subplots(figsize=(6, 3))
axes.barh(list(ratios), list(ratios.values()))
axes.axvline(1, color="black", linewidth=1)
axes.invert_yaxis()
axes.set_xlabel("time of a training step relative to nn.LSTM")
figure.tight_layout()
plt.show()
