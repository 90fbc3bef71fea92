"""What all units share: cells and projections, depth, direction, packing, dropouts, streams."""
