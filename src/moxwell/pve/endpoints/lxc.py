"""Endpoints that read LXC containers; Moxwell creates none."""

from moxwell.pve.endpoints.guest import AnyGuestReader


class LxcReader(AnyGuestReader):
    """GET requests below ``/nodes/{node}/lxc``."""

    _family = "lxc"
