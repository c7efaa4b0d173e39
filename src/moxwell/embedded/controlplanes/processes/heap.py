"""
Settings of Python's cyclic garbage collector for processes that run for weeks.

A process imports and creates some hundred thousand objects before it serves, which every full
collection would examine again. Reference counting frees nearly all later objects, so that cycles
may wait longer than by default.
"""

import gc

THRESHOLD = 10_000  # new container objects between two collections of the youngest ones


def settle() -> None:
    """Called once after the start: what exists then is not examined again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(THRESHOLD)
