"""Schemas of guest configurations: property strings, named formats and option tables."""
