"""Layers around the units: softmaxes, CRF, attention, pooling, embeddings, beam search, Transformers."""

# Part of the interface by this name: code outside replaces `linnet.layers.projection.keep_mask`.
from linnet.recurrent import projection as projection
