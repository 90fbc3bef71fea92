"""
What a state is made of
=======================

The state of a RAN is a weighted sum of its inputs, and its gates say what the weights are. ``linnet.record``
returns the gates, so that we can see how much of each earlier input is left in the state at each step.
"""

import matplotlib.pyplot as plt
import torch

import linnet

torch.manual_seed(0)

# %%
# A task that needs memory: the network reads numbers, some of them marked, and has to return the sum of the
# marked numbers so far.


def batch(size=64, steps=12):
    numbers = torch.rand(steps, size)
    marks = (torch.rand(steps, size) < 0.25).float()
    return torch.stack([numbers, marks], -1), (numbers * marks).cumsum(0)


rnn, out = linnet.RAN(2, 16), torch.nn.Linear(16, 1)
optimiser = torch.optim.Adam([*rnn.parameters(), *out.parameters()], lr=0.01)
for _ in range(300):
    x, y = batch()
    loss = (out(rnn(x)[0])[..., 0] - y).square().mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
print(f"mean squared error {loss.item():.4f}")

# %%
# The state is c_t = i_t content_t + f_t c_{t-1}. Step j is left at step t with the weight i_j times the
# product of the forget gates since j.

x, _ = batch(size=1)
gates = linnet.record(rnn, x)[0]
i, f = gates["i"][:, 0].detach(), gates["f"][:, 0].detach()  # [T, H]
steps = len(i)
weights = torch.zeros(steps, steps)
for j in range(steps):
    left = i[j]
    for t in range(j, steps):
        left = left * f[t] if t > j else left
        weights[t, j] = left.max()

# %%
# Marked steps stay in the state; the others are not written, or are forgotten.

figure, axes = plt.subplots(figsize=(5, 4))
axes.imshow(weights, cmap="Blues", vmin=0, vmax=1)
marked = x[:, 0, 1] > 0
axes.set_xticks(range(steps), ["marked" if mark else "" for mark in marked], rotation=90)
axes.set(xlabel="read at step", ylabel="left at step", title="largest weight of any channel")
plt.show()
