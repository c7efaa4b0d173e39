"""Built-in kinds: Go encoding, defaults, validation, printer columns."""
