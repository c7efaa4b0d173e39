"""
GET file-restore: files in a backup, of Proxmox Backup Server only.

Such a server is outside the simulated network, so that a storage of its type cannot be reached.
"""

from moxwell.lab.proxmox.errors import bad_params, die
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import by_schema
from moxwell.lab.proxmox.state import Row
from moxwell.lab.proxmox.volumes import access, names
from moxwell.lab.proxmox.volumes.volume_store import VolumeStore

_PATH = "/nodes/{node}/storage/{storage}/file-restore"


def _volid(storage: str, volume: str) -> str:
    """The volume id of a volume id, a volume name or a file name."""
    if ":" in volume:
        name, _ = names.split_volid(volume)
        if name != storage:
            raise bad_params(volume=f"storage ID mismatch ({name} != {storage}).")
        return volume
    return f"{storage}:{volume if volume.startswith('backup/') else f'backup/{volume}'}"


def restore(call: PveCall) -> list[Row]:
    """GET file-restore/list and download."""
    storage_name = call.params["storage"]
    volid = _volid(storage_name, call.params["volume"])
    store = VolumeStore(call.runtime, call.node)
    storage = store.get_storage(storage_name)
    if storage.type == "pbs":
        server = storage.options.get("server", "")
        raise die(f"error trying to connect to {server}: Connection refused")
    access.check_volume(call, store, volid, kind="backup")
    raise bad_params(storage="Only PBS storages supported for file-restore.")


ROUTES: tuple[ApiRoute, ...] = tuple(
    ApiRoute("GET", f"{_PATH}/{name}", restore, permission=by_schema)
    for name in ("list", "download")
)
