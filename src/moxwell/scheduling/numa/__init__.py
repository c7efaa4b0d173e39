"""
Places guests on the NUMA nodes and cores of a host. Pure.

Host topology comes from the host agent, a node-settings file or a guess. What is in use is read
from the configurations of the guests, so it survives restarts.
"""
