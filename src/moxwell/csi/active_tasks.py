"""
What a host of Proxmox is working on for us, also if another life of the driver told it to.

The surprise: the cluster's own list of tasks shows a token nothing, not even its own tasks, unless
it has Sys.Audit on ``/``; a host shows everybody their own. So the host is asked.
"""

from moxwell.pve.endpoints.cluster import TaskRow
from moxwell.pve.regions import Region

MANY = 1000


async def running(region: Region, host: str, *, vmid: int | None = None) -> tuple[TaskRow, ...]:
    """The tasks that run on a host, as far as we may see them; or those of one guest there."""
    rows = await region.pve.tasks.list(host, vmid=vmid, source="active", limit=MANY)
    return tuple(row for row in rows if row.running)
