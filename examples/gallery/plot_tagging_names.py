"""
Tagging names
=============

A tagger gives each word a tag: here, whether it belongs to the name of a person or of a place. The words of a
sentence are read in both directions, and a CRF chooses the best sequence of tags.
"""

import random

import matplotlib.pyplot as plt
import torch

from linnet.models.tagger import Tagger, TaggerConfig

torch.manual_seed(0)
random.seed(0)

# %%
# Sentences from patterns. Some words are ambiguous: "Jordan", "Florence" and "Paris" are persons or places,
# and only the words around them say which.

FIRST = ["Anna", "Peter", "Maria", "Jordan", "Florence", "Paris", "Omar"]
LAST = ["Smith", "Rossi", "Tanaka", "Jordan", "Lee"]
PLACES = ["Rome", "Jordan", "Florence", "Paris", "Kyoto", "London"]
PATTERNS = [
    "{person} flew to {place} on Monday",
    "the train from {place} to {place} was late",
    "{person} and {person} live near {place}",
    "a letter for {person} arrived from {place}",
    "it rains in {place} , said {person}",
    "{place} is larger than {place}",
]


def sentence():
    words, tags = [], []
    for word in random.choice(PATTERNS).split():
        if word == "{place}":
            words.append(random.choice(PLACES))
            tags.append("B-LOC")
        elif word == "{person}":
            name = [random.choice(FIRST), random.choice(LAST)][: random.randint(1, 2)]
            words += name
            tags += ["B-PER", "I-PER"][: len(name)]
        else:
            words.append(word)
            tags.append("O")
    return words, tags


TAGS = ["O", "B-PER", "I-PER", "B-LOC"]
vocabulary = {word: n for n, word in enumerate(sorted({w for _ in range(500) for w in sentence()[0]}), 1)}


def batch(size=32):
    sentences = [sentence() for _ in range(size)]
    lengths = torch.tensor([len(words) for words, _ in sentences])
    tokens, tags = torch.zeros(2, max(lengths), size, dtype=torch.int64)
    for n, (words, own) in enumerate(sentences):
        tokens[: len(words), n] = torch.tensor([vocabulary[word] for word in words])
        tags[: len(own), n] = torch.tensor([TAGS.index(tag) for tag in own])
    return tokens, tags, lengths


# %%
# Any unit works. ``decoder`` is a :class:`linnet.CRF`: its log-likelihood is the loss.

config = TaggerConfig(unit="lrn", embedding_size=16, hidden_size=16, dense_size=16, character_size=0)
model = Tagger(len(vocabulary) + 1, len(TAGS), config)
optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(301):
    tokens, tags, lengths = batch()
    loss = -model.decoder(model(tokens, lengths), tags, lengths=lengths, reduction="token_mean")
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    if step % 100 == 0:
        print(f"update {step}: loss per word {loss.item():.3f}")

# %%
# The same word with two tags. ``decode`` returns the best tags, ``marginals`` the probability of each tag.

model.eval()
words = ["Florence", "Jordan", "flew", "to", "Florence", ",", "said", "Paris"]
tokens = torch.tensor([[vocabulary[word]] for word in words])
with torch.no_grad():
    scores = model(tokens, [len(words)])
    (best,) = model.decoder.decode(scores, lengths=[len(words)])
    probabilities = model.decoder.marginals(scores, lengths=[len(words)])[:, 0]
print(" ".join(f"{word}/{TAGS[tag]}" for word, tag in zip(words, best, strict=True)))

figure, axes = plt.subplots(figsize=(7, 2.6))
axes.imshow(probabilities.T, cmap="Blues", vmin=0, vmax=1, aspect="auto")
axes.set_xticks(range(len(words)), words)
axes.set_yticks(range(len(TAGS)), TAGS)
axes.set_title("probability of each tag")
figure.tight_layout()
plt.show()

# %%
# On your own files this is one command, with characters and pretrained vectors:
# ``linnet train tag --path train.txt --unit lrn``.
