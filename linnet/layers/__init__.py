"""What any unit can wear: depth, direction, packing, dropouts, norms, residuals."""
