"""``moxwell plan``: what a manifest would change, computed without applying it."""
