"""The tables: one module per area, each with ``CASES``."""
