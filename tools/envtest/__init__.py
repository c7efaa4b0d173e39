"""The envtest: genuine programs nobody here wrote, installed once and started for tests."""
