"""Starts, probes and restarts the programs of control planes as processes of this machine."""
