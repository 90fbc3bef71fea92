"""What all units share: depth, direction, packing, dropouts, norms, residuals."""
