"""Models that compute with whole numbers only, for processors without floating point."""
