"""Fixtures over genuine programs are open to every test; what they are is in ``tools/rig``."""

pytest_plugins = ["rig.plugin"]
