"""The cases: one module per area, each with ``CASES``."""
