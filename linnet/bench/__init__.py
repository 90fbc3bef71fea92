"""What `linnet bench` and the project's own benchmarks (benchmarks/, not in the wheel) measure with."""
