"""Parameters that many endpoints share."""

from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.route import Param

NODE = Param(optional=False, format=formats.node)
VMID = Param("integer", optional=False, minimum=100, maximum=999999999, format=formats.vmid)
STORAGE = Param(optional=False, format=formats.storage_id)
DIGEST = Param(max_length=64)
