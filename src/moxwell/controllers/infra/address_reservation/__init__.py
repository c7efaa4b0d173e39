"""Releases reserved addresses that nobody else uses any more."""
