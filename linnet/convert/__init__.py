"""Recurrent layers of other implementations in a model, replaced by Linnet's, and back."""
