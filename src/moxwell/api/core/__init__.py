"""The built-in kinds that we read or write, with the fields we use."""
