"""Runs each embedded control plane in a process of its own, with limits of memory and CPU."""
