"""
Reinforcement learning with resets
==================================

A rollout of an environment contains several episodes, and the memory of a policy must be empty at the start
of each of them. ``resets=`` does this inside one call of the layer, gradients included.
"""

import matplotlib.pyplot as plt
import torch

import linnet

# %%
# Votes: at some steps of an episode somebody votes for the left or for the right. At the end the policy must
# choose the side with more votes. Episodes have different lengths and follow each other without a pause, so
# the count of votes must start at zero again and again.

STEPS, ENVIRONMENTS = 48, 32


def rollout(generator):
    """Observations [T, B, 3] (a vote for each side, the end of an episode), starts, ends and sides [T, B]."""
    observations = torch.zeros(STEPS, ENVIRONMENTS, 3)
    starts = torch.zeros(STEPS, ENVIRONMENTS, dtype=torch.bool)
    ends, sides = torch.zeros_like(starts), torch.zeros(STEPS, ENVIRONMENTS, dtype=torch.int64)
    for b in range(ENVIRONMENTS):
        t = 0
        while (length := int(torch.randint(5, 13, (), generator=generator))) + t <= STEPS:
            votes = torch.zeros(length, dtype=torch.int64)
            while votes.sum() == 0:
                votes[:-1] = torch.randint(-1, 2, (length - 1,), generator=generator)
            observations[t : t + length, b, 0] = (votes < 0).float()
            observations[t : t + length, b, 1] = (votes > 0).float()
            observations[t + length - 1, b, 2] = 1
            starts[t, b], ends[t + length - 1, b] = True, True
            sides[t : t + length, b] = int(votes.sum() > 0)
            t += length
    return observations, starts, ends, sides


# %%
# REINFORCE with a baseline. The policy only differs in whether it passes ``resets=starts``.


def train(use_resets, updates=200):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    rnn, actor = linnet.SRU(3, 24), torch.nn.Linear(24, 2)
    optimiser = torch.optim.Adam([*rnn.parameters(), *actor.parameters()], lr=0.01)
    successes = []
    for _ in range(updates):
        observations, starts, ends, sides = rollout(generator)
        features, _ = rnn(observations, resets=starts if use_resets else None)
        policy = torch.distributions.Categorical(logits=actor(features[ends]))
        actions = policy.sample()
        rewards = (actions == sides[ends]).float()
        loss = -(policy.log_prob(actions) * (rewards - rewards.mean())).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        successes.append(rewards.mean().item())
    return successes


curves = {"with resets": train(True), "without resets": train(False)}
for name, successes in curves.items():
    print(f"{name}: {sum(successes[-20:]) / 20:.2f} of the last episodes end on the right side")

# %%
# Without resets the votes of earlier episodes stay in the state, and the policy has to learn by itself when
# to forget them.

figure, axes = plt.subplots(figsize=(6, 3))
for name, successes in curves.items():
    smooth = torch.tensor(successes).unfold(0, 10, 1).mean(-1)
    axes.plot(range(10, len(successes) + 1), smooth, label=name)
axes.axhline(0.5, color="grey", linewidth=1, linestyle="--")
axes.set(xlabel="update", ylabel="rewarded episodes", ylim=(0.4, 1.02))
axes.legend()
figure.tight_layout()
plt.show()

# %%
# One call equals a loop over the steps that clears the state where an episode starts:

observations, starts, _, _ = rollout(torch.Generator().manual_seed(1))
rnn = linnet.SRU(3, 24)
whole, _ = rnn(observations, resets=starts)
state, outputs = torch.zeros(1, ENVIRONMENTS, 24), []
for x, start in zip(observations, starts, strict=True):
    y, state = rnn(x[None], state * ~start[None, :, None])
    outputs.append(y[0])
print(f"largest difference {(torch.stack(outputs) - whole).abs().max().item():.1e}")
