"""The rig: genuine programs nobody here wrote, installed once and started for tests."""
