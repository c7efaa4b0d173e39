"""
The script that cloud-init runs before the commands of the user data, as NoCloud vendor data. Pure.

The bootstrap ISO is deleted once the machine has its node. Without a mark in the instance's folder,
cloud-init with ``None`` in its list of data sources (the lists of many images end with it) takes
the next boot for that of a new instance, and gives it another host name and network.
"""

EMPTY = b"#!/bin/sh\n"
KEEP = b"touch /var/lib/cloud/instance/manual-clean\n"


def vendor_data(script: bytes = EMPTY) -> bytes:
    """A script that marks the instance as one to keep, then does what ``script`` does."""
    interpreter, _, rest = script.partition(b"\n")
    return interpreter + b"\n" + KEEP + rest
