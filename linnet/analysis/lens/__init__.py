"""The lens: a page in which a person types, and watches a trained model read."""
