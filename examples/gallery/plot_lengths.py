"""
Sequences of different lengths
==============================

Pad the sequences, pass ``lengths``, and each sequence has the result that it would have alone. What padding
costs is time: batches of similar lengths have less of it.
"""

import statistics
import time

import matplotlib.pyplot as plt
import torch

import linnet

torch.manual_seed(0)

# %%
# Lengths as in a text: many short sequences and some long ones.

lengths = torch.randint(3, 25, (512,)) + (torch.rand(512) < 0.1) * torch.randint(0, 150, (512,))
sequences = [torch.randn(int(length), 64) for length in lengths]
rnn = linnet.SRU(64, 64, bidirectional=True)

# %%
# The padded batch gives the same outputs as the sequences one by one. Outputs at padded steps are 0.

x = torch.nn.utils.rnn.pad_sequence(sequences[:8])
output, state = rnn(x, lengths=lengths[:8])
for number, sequence in enumerate(sequences[:8]):
    alone, _ = rnn(sequence)
    assert torch.allclose(output[: len(sequence), number], alone, atol=1e-5)

figure, axes = plt.subplots(figsize=(7, 2.4))
axes.imshow((output != 0).any(-1).T, cmap="Blues", aspect="auto", interpolation="nearest", vmax=1.4)
axes.set(xlabel="time step", ylabel="sequence", title="eight sequences in a batch; white: padding")
figure.tight_layout()
plt.show()

# %%
# Two ways to make batches of 32: as the sequences come, or sorted by length. The second has little padding.


def batches(order):
    for chosen in order.split(32):
        padded = torch.nn.utils.rnn.pad_sequence([sequences[number] for number in chosen])
        yield padded, lengths[chosen]


orders = {"as they come": torch.arange(512), "sorted by length": lengths.argsort()}


def seconds(order):
    start = time.perf_counter()
    for padded, own in batches(order):
        rnn(padded, lengths=own)[0].sum().backward()
    return time.perf_counter() - start


seconds(orders["as they come"])  # compiles the kernels
times = {name: [] for name in orders}
for _ in range(5):
    for name, order in orders.items():
        times[name].append(seconds(order))
shares = {
    name: 1 - lengths.sum() / sum(x.shape[0] * x.shape[1] for x, _ in batches(order))
    for name, order in orders.items()
}
for name in orders:
    print(f"{name}: {shares[name]:.0%} padding, {1000 * statistics.median(times[name]):.0f} ms for an epoch")

figure, axes = plt.subplots(figsize=(6, 2))
axes.barh(list(orders), [1000 * statistics.median(times[name]) for name in orders])
axes.invert_yaxis()
axes.set_xlabel("ms for forward and backward over all sequences")
figure.tight_layout()
plt.show()
