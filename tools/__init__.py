"""What only the developers of Linnet run: the soak, the GPU model, the writers of pages.

Run each from the root of the repository: `python -m tools.soak --minutes 5`. None of it is in the wheel.
"""
