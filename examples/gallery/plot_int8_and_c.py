"""
Smaller and without Python: int8 and C
======================================

A trained network as int8, which is a quarter of the size, and as C, which needs neither Python nor a library.
"""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch

import linnet

torch.manual_seed(0)

# %%
# A network that predicts the next value of a sum of two sines.

time = torch.arange(0, 400) * 0.1
signal = (torch.sin(time) + 0.5 * torch.sin(2.3 * time))[:, None, None]
model = torch.nn.Sequential(torch.nn.Linear(1, 64), linnet.LRN(64, 64, num_layers=2), torch.nn.Linear(64, 1))


def run(model, x):
    encode, rnn, decode = model
    return decode(rnn(encode(x))[0])


optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(150):
    loss = (run(model, signal[:-1]) - signal[1:]).square().mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
print(f"mean squared error {loss.item():.5f}")

# %%
# **int8**: ``linnet.quantize`` returns a copy whose matrices are whole numbers of eight bits, with a scale
# for each row.


def size(model):
    return sum(tensor.nbytes for tensor in model.state_dict().values())


model.eval()
small = linnet.quantize(model)
with torch.no_grad():
    exact, rounded = run(model, signal), run(small, signal)
print(f"{size(model):,} bytes in float32, {size(small):,} in int8")
print(f"largest difference of the predictions: {(exact - rounded).abs().max():.4f}")

figure, (above, below) = plt.subplots(2, 1, figsize=(7, 4), sharex=True, height_ratios=[2, 1])
above.plot(signal[1:, 0, 0], color="lightgrey", linewidth=5, label="signal")
above.plot(exact[:-1, 0, 0], linewidth=1.5, label="float32")
above.plot(rounded[:-1, 0, 0], "--", linewidth=1.5, label="int8")
above.legend(ncols=3, fontsize=8)
below.plot((rounded - exact)[:, 0, 0])
below.set(xlabel="time step", ylabel="int8 - float32")
figure.tight_layout()
plt.show()

# %%
# **C**: a folder with C99 and the weights. It includes a test that compares some steps with those in Python.

folder = Path(tempfile.mkdtemp()) / "sines"
linnet.export_c(model, folder, name="sines")
for path in sorted(folder.iterdir()):
    print(f"{path.name:18} {path.stat().st_size:8,} bytes")

# %%
# The interface is one function that reads an input, changes the state and writes the output:

header = (folder / "sines.h").read_text()
print("\n".join(re.findall(r"^void sines_.*?;", header, re.MULTILINE | re.DOTALL)))

# %%
# Compile and run the test, if there is a compiler:

if compiler := shutil.which("cc"):
    subprocess.run([compiler, "-O3", "sines.c", "sines_test.c", "-o", "test"], cwd=folder, check=True)
    print(subprocess.run(["./test"], cwd=folder, check=True, capture_output=True, text=True).stdout)
