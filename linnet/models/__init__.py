"""Models: one for each shape of task, each taking any unit."""
