"""
POST upload (stores the bytes) and GET import-metadata.

File names are normalized as in PVE; the extension must match the content type.
"""

import hashlib
import re

from moxwell.lab.proxmox.errors import bad_params, die
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import by_schema, perm
from moxwell.lab.proxmox.tasks import WorkerContext
from moxwell.lab.proxmox.volumes import access, names
from moxwell.lab.proxmox.volumes.images import check_image, virtual_size
from moxwell.lab.proxmox.volumes.volume_store import VolumeStore

_PATH = "/nodes/{node}/storage/{storage}"
_EXTENSIONS = {
    "iso": re.compile(r"[^/]+\.(?:iso|img)", re.I),
    "vztmpl": re.compile(r"[^/]+\.tar\.(?:gz|xz|zst|bz2)", re.I),
    "import": re.compile(r"[a-zA-Z0-9\-.+=_]+\.(?:ova|qcow2|raw|vmdk)"),
}


def normalize_name(name: str) -> str:
    """The last path component with special characters replaced."""
    base = re.sub(r"^.*[/\\]", "", name)
    return re.sub(r"[^-a-zA-Z0-9_.]", "_", base)


def file_format(content: str, name: str) -> str:
    """The format in a content list."""
    if content == "iso":
        return "iso"
    if content == "vztmpl":
        ending = name.rpartition(".")[2].lower()
        return ending if ending == "tar" else f"t{ending}"
    if content == "import":
        return name.rpartition(".")[2]
    return "snippet"


def check_name(content: str, name: str, major: int) -> None:
    """Check the extension; PVE 9 also accepts plain tar files, for OCI images."""
    plain = major >= 9 and content == "vztmpl" and name.lower().endswith(".tar")
    if not plain and not _EXTENSIONS[content].fullmatch(name):
        text = "invalid filename or wrong extension" if content == "import" else None
        raise bad_params(filename=text or "wrong file extension")


def upload(call: PveCall) -> str:
    """POST upload: the file of a multipart form."""
    storage_name, content = call.params["storage"], call.params["content"]
    store = VolumeStore(call.runtime, call.node)
    storage = store.get_enabled(storage_name)
    if not names.has_path(storage):
        raise die(f"can't upload to storage type '{storage.type}'")
    if call.upload is None:
        raise die("missing temporary file name")
    name, data = normalize_name(call.params["filename"]), call.upload.data
    check_name(content, name, call.major)
    if content not in storage.content:
        raise die(f"storage '{storage_name}' does not support '{content}' content")
    rest = f"{content}/{name}"
    temporary = f"/var/tmp/pveupload-{call.runtime.random.getrandbits(128):032x}"

    async def worker(ctx: WorkerContext) -> None:
        ctx.log(f"starting file import from: {temporary}")
        _verify(call, data, ctx)
        form = file_format(content, name)
        if content == "import":
            check_image(form, data, temporary)
        target = names.path_of(storage, rest)
        ctx.log(f"target node: {call.node}\ntarget file: {target}\nfile size is: {len(data)}")
        ctx.log(f"command: cp -- {temporary} {target}")
        await ctx.sleep(len(data) / call.region.pace.bandwidth)
        volid = store.put_file(storage_name, rest, content, form, data)
        store.get(volid).size = virtual_size(form, data) or len(data)
        ctx.log("finished file import successfully")

    return call.spawn("imgcopy", "", worker)


def _verify(call: PveCall, data: bytes, ctx: WorkerContext) -> None:
    algorithm, wanted = call.get("checksum-algorithm"), call.get("checksum")
    if not algorithm:
        return
    got = hashlib.new(algorithm, data).hexdigest()
    if got.lower() != str(wanted).lower():
        ctx.log("calculating checksum...")
        raise die(f"checksum mismatch: got '{got}' != expect '{wanted}'")
    ctx.log("calculating checksum...OK, checksum verified")


def import_metadata(call: PveCall) -> None:
    """GET import-metadata: what an appliance contains; files of the simulator have none."""
    storage_name, volume = call.params["storage"], call.params["volume"]
    store = VolumeStore(call.runtime, call.node)
    access.check_volume(call, store, f"{storage_name}:{volume}")
    storage = store.get_storage(storage_name)
    if not names.has_path(storage):
        raise die("storage does not support the importer API")
    parsed = names.parse_name(storage, volume)
    if parsed.kind != "import":
        raise die(f"invalid content type '{parsed.kind}'")
    if parsed.format not in ("ova", "ovf"):
        raise die("invalid format")
    path = names.path_of(storage, volume)
    command = f"tar -xO --wildcards '--occurrence=1' -f {path} '*.ovf'"
    raise die(f"command '{command}' failed: exit code 2")


ROUTES: tuple[ApiRoute, ...] = (
    ApiRoute(
        "POST",
        f"{_PATH}/upload",
        upload,
        permission=perm("/storage/{storage}", "Datastore.AllocateTemplate"),
    ),
    ApiRoute(
        "GET",
        f"{_PATH}/import-metadata",
        import_metadata,
        permission=by_schema,
    ),
)
