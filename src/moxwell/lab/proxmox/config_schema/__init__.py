"""The texts of guest configurations: property strings, named formats, option tables."""
