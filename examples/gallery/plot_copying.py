"""
Copying memory with NRU
=======================

The network sees a few symbols, waits, and then has to repeat the symbols. NRU has a memory of its own, into
which its heads write and erase at each step. We train it on a short wait and look into its memory.
"""

from itertools import islice

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F

import linnet
from linnet.data.memory import Copying

# %%
# Three symbols of four, a wait of five steps, then a marker that asks for the symbols.

source = Copying(span=5, symbols=4, recalled=3)
batches = source.training(32, seed=1)
example = next(batches)
print("input ", example.inputs[:, 0].tolist(), "(0: a blank, 5: the marker)")
print("target", example.targets[:, 0].tolist())

# %%
# NRU and LSTM with about the same number of parameters.


def train(rnn, updates=1500):
    out = torch.nn.Linear(rnn.output_size, source.output_size)
    parameters = [*rnn.parameters(), *out.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=0.001, amsgrad=True)
    losses = []
    for batch in islice(source.training(32, seed=1), updates):
        x = F.one_hot(batch.inputs, source.input_size).float()
        loss = F.cross_entropy(out(rnn(x)[0]).flatten(0, 1), batch.targets.flatten())
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        losses.append(loss.item())
    return losses


networks = {}
figure, axes = plt.subplots(figsize=(6, 3))
for name, size in {"nru": 32, "lstm": 47}.items():
    torch.manual_seed(0)
    rnn = networks[name] = linnet.UNITS[name](source.input_size, size)
    losses = train(rnn)
    smooth = torch.tensor(losses).unfold(0, 25, 1).mean(-1)
    axes.plot(range(25, len(losses) + 1), smooth, label=name)
    print(f"{name}: {sum(p.numel() for p in rnn.parameters()):,} parameters, loss {smooth[-1]:.4f}")
# A model without memory answers at the right time and guesses.
baseline = source.guessed(example.targets) / example.targets.numel()
axes.axhline(baseline, color="grey", linewidth=1, linestyle="--", label="no memory")
axes.set(xlabel="update", ylabel="loss", ylim=(0, 0.6))
axes.legend()
figure.tight_layout()
plt.show()

# %%
# How much each memory cell changes at each step of one sequence (Figure 6 of the NRU paper): while symbols
# are shown, while it waits, and while it answers.

x = F.one_hot(example.inputs[:, :1], source.input_size).float()
memory = linnet.record(networks["nru"], x)[0]["m"][:, 0].detach()
changes = memory.diff(dim=0, prepend=torch.zeros(1, memory.shape[1])).abs()

figure, axes = plt.subplots(figsize=(6, 3.4))
axes.imshow(changes.T, cmap="Blues", aspect="auto", interpolation="nearest")
axes.set_xticks(range(len(x)), example.inputs[:, 0].tolist())
axes.set(xlabel="input at each step", ylabel="memory cell", title="absolute change of a cell")
figure.tight_layout()
plt.show()
