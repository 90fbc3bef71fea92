"""One file for each project: a small program as one of its users would write it, with `rnn` for nn.LSTM."""
