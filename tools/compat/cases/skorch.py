"""skorch: a module of torch with the interface of scikit-learn."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import torch
from skorch import NeuralNetClassifier
from torch import nn

from tools.compat.contestants import RNN
from tools.compat.examples import LEARNT, Classifier, sequences


def classifier(rnn: RNN, epochs: int) -> NeuralNetClassifier:
    options = {"criterion": nn.CrossEntropyLoss, "optimizer": torch.optim.Adam, "lr": 0.01, "verbose": 0}
    return NeuralNetClassifier(Classifier, module__rnn=rnn, max_epochs=epochs, batch_size=64, **options)


def check(rnn: RNN, folder: Path) -> None:
    x, y = (tensor.numpy() for tensor in sequences())
    net = classifier(rnn, epochs=20).fit(x, y)
    assert net.score(x, y) > LEARNT
    expected = net.predict_proba(x)
    net.save_params(f_params=folder / "weights.pt")
    loaded = classifier(rnn, epochs=20).initialize()
    loaded.load_params(f_params=folder / "weights.pt")
    assert (loaded.predict_proba(x) == expected).all()
    assert (pickle.loads(pickle.dumps(net)).predict_proba(x) == expected).all()


def work(rnn: RNN) -> Callable[[], object]:
    x, y = (tensor.numpy() for tensor in sequences())
    net = classifier(rnn, epochs=1).initialize()
    return lambda: net.partial_fit(x, y)
