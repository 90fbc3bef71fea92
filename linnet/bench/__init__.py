"""Speed and memory, beside the peers and beside the limit; and the soak."""
