"""Custom kinds: their definitions, and schemas compiled to functions."""
