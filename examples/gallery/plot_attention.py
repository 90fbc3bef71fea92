"""
Classification with attention
=============================

A classifier that tells verses of the Old Testament from verses of the New one. It pools the outputs of the
recurrent layer by attention, so that we can see which words the answer is made of.
"""

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F

import linnet
from linnet.data.kjv import labelled_verses
from linnet.data.vocabulary import word_vocabulary
from linnet.layers.pooling import AttentivePooling

torch.manual_seed(0)

# %%
# The King James Bible comes with the extra ``linnet-rnn[lm]`` and needs no download.

train, valid, _ = labelled_verses("testament")
vocabulary = word_vocabulary(
    "\n".join(text for text, _ in train), words="punctuation", lowercase=True, size=4000
)
classes = ["Old", "New"]


def examples(verses):
    return [(vocabulary.encode(text), classes.index(label)) for text, label in verses]


def batches(data, size=64):
    """Verses of similar lengths share a batch: less padding."""
    data = sorted(data, key=lambda example: len(example[0]))
    groups = [data[start : start + size] for start in range(0, len(data), size)]
    for number in torch.randperm(len(groups)).tolist():
        texts, labels = zip(*groups[number], strict=True)
        lengths = torch.tensor([len(text) for text in texts])
        yield torch.nn.utils.rnn.pad_sequence(texts), lengths, torch.tensor(labels)


# %%
# A layer that reads in both directions, and a weighted mean of its outputs. The weights are learned.


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(len(vocabulary), 32)
        self.rnn = linnet.SRU(32, 32, bidirectional=True)
        self.pool = AttentivePooling(64, 32)
        self.output = torch.nn.Linear(64, len(classes))

    def forward(self, tokens, lengths):
        y, _ = self.rnn(self.embedding(tokens), lengths=lengths)
        return self.output(self.pool(y, lengths))


model = Classifier()
optimiser = torch.optim.Adam(model.parameters(), lr=0.003)
for tokens, lengths, labels in batches(examples(train[::3])):
    loss = F.cross_entropy(model(tokens, lengths), labels)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()

model.eval()
right = total = 0
with torch.no_grad():
    for tokens, lengths, labels in batches(examples(valid)):
        right += int((model(tokens, lengths).argmax(-1) == labels).sum())
        total += len(labels)
share_of_old = sum(label == "Old" for _, label in valid) / len(valid)
print(f"accuracy on {total} verses: {right / total:.3f} (always answering Old: {share_of_old:.3f})")

# %%
# The weights of the words of two verses: names and places decide.

VERSES = [
    "And Moses said unto the children of Israel",
    "Grace be with you all from our Lord Jesus Christ",
]
figure, all_axes = plt.subplots(2, 1, figsize=(7, 4.2))
for axes, verse in zip(all_axes, VERSES, strict=True):
    tokens = vocabulary.encode(verse)
    with torch.no_grad():
        y, _ = model.rnn(model.embedding(tokens[:, None]))
        _, weights = model.pool.attend(y)
        p = model(tokens[:, None], torch.tensor([len(tokens)])).softmax(-1)[0]
    axes.bar(range(len(tokens)), weights[:, 0])
    axes.set_xticks(range(len(tokens)), [vocabulary.tokens[token] for token in tokens], rotation=30)
    axes.set_title(f"{classes[int(p.argmax())]} Testament: {p.max():.2f}", fontsize=10)
    axes.set_ylabel("weight")
figure.tight_layout()
plt.show()
