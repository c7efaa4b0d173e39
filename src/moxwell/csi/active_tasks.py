"""
Lists the Proxmox tasks that are running on a host, also those of an earlier driver process.

``/cluster/tasks`` shows a token no tasks, not even its own, without Sys.Audit on ``/``. The task
list of a host shows every user their own tasks, so the host is asked.
"""

from moxwell.pve.endpoints.cluster import TaskRow
from moxwell.pve.regions import Region

MANY = 1000


async def running(region: Region, host: str, *, vmid: int | None = None) -> tuple[TaskRow, ...]:
    """The running tasks on a host that the token may see, or those of one guest."""
    rows = await region.reader.tasks.list(host, vmid=vmid, source="active", limit=MANY)
    return tuple(row for row in rows if row.running)
