"""
POST upload (stores the bytes) and POST download-url (a file of the world file, or zeros).

File names are normalized as in PVE; the extension must match the content type.
"""

import hashlib
import re

from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.errors import bad_params, die, forbidden
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute, Param
from moxwell.lab.proxmox.route_permissions import perm
from moxwell.lab.proxmox.tasks import WorkerContext
from moxwell.lab.proxmox.volumes import names
from moxwell.lab.proxmox.volumes.volume_store import VolumeStore

_PATH = "/nodes/{node}/storage/{storage}"
_EXTENSIONS = {
    "iso": re.compile(r"[^/]+\.(?:iso|img)", re.I),
    "vztmpl": re.compile(r"[^/]+\.tar\.(?:gz|xz|zst|bz2)", re.I),
    "import": re.compile(r"[a-zA-Z0-9\-.+=_]+\.(?:ova|qcow2|raw|vmdk)"),
}
_ALGORITHMS = ("md5", "sha1", "sha224", "sha256", "sha384", "sha512")
DEFAULT_BYTES = 1 << 20


def normalize_name(name: str) -> str:
    """The last path component with special characters replaced."""
    base = re.sub(r"^.*[/\\]", "", name)
    return re.sub(r"[^-a-zA-Z0-9_.]", "_", base)


def file_format(content: str, name: str) -> str:
    """The format in a content list."""
    if content == "iso":
        return "iso"
    if content == "vztmpl":
        return {"gz": "tgz", "xz": "txz", "zst": "tzst", "bz2": "tbz2"}[name.rpartition(".")[2]]
    if content == "import":
        return name.rpartition(".")[2]
    return "snippet"


def _check_name(content: str, name: str) -> None:
    if not _EXTENSIONS[content].fullmatch(name):
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
    _check_name(content, name)
    if content not in storage.content:
        raise die(f"storage '{storage_name}' does not support '{content}' content")
    rest = f"{content}/{name}"
    temporary = f"/var/tmp/pveupload-{call.runtime.random.getrandbits(128):032x}"

    async def worker(ctx: WorkerContext) -> None:
        ctx.log(f"starting file import from: {temporary}")
        _verify(call, data, ctx)
        target = names.path_of(storage, rest)
        ctx.log(f"target node: {call.node}\ntarget file: {target}\nfile size is: {len(data)}")
        ctx.log(f"command: cp -- {temporary} {target}")
        await ctx.sleep(len(data) / call.region.pace.bandwidth)
        store.put_file(storage_name, rest, content, file_format(content, name), data)
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


def download(call: PveCall) -> str:
    """POST download-url: stores the world's ``files`` entry of the URL, or zeros."""
    storage_name, content = call.params["storage"], call.params["content"]
    store = VolumeStore(call.runtime, call.node)
    storage = store.get_enabled(storage_name)
    if not names.has_path(storage):
        raise die(f"can't upload to storage type '{storage.type}', not a file based storage!")
    if content not in storage.content:
        raise die(f"storage '{storage_name}' is not configured for content-type '{content}'")
    name, url = normalize_name(call.params["filename"]), call.params["url"]
    _check_name(content, name)
    rest = f"{content}/{name}"

    async def worker(ctx: WorkerContext) -> None:
        ctx.log(f"downloading {url} to {names.path_of(storage, rest)}")
        row = call.region.files.get(url, {})
        if row.get("status", 200) != 200:
            raise die(f"download failed: 404 Not Found for {url}")
        size = int(row.get("size", DEFAULT_BYTES))
        await ctx.sleep(size / call.region.pace.bandwidth)
        data = bytes(row["data"], "utf-8") if "data" in row else bytes(min(size, DEFAULT_BYTES))
        if row:
            _verify(call, data, ctx)
        volid = store.put_file(storage_name, rest, content, file_format(content, name), data)
        volume = store.get(volid)
        volume.size = int(row.get("virtual_size", size))
        store.set_used(volid, size)
        ctx.log("download of '{url}' finished".replace("{url}", url))

    return call.spawn("download", name, worker)


def _may_download(call: PveCall) -> None:
    call.check(f"/storage/{call.params['storage']}", "Datastore.AllocateTemplate")
    if call.has_privileges("/", "Sys.Audit", "Sys.Modify"):
        return
    if not call.has_privileges(f"/nodes/{call.params['node']}", "Sys.AccessNetwork"):
        raise forbidden(f"/nodes/{call.params['node']}, Sys.AccessNetwork")


_BASE = {
    "node": Param(optional=False, format=formats.node),
    "storage": Param(optional=False, format=formats.storage_id),
    "content": Param(
        optional=False, format=formats.storage_content, enum=("iso", "vztmpl", "import")
    ),
    "filename": Param(optional=False, max_length=255),
    "checksum": Param(requires="checksum-algorithm"),
    "checksum-algorithm": Param(enum=_ALGORITHMS, requires="checksum"),
}
ROUTES: tuple[ApiRoute, ...] = (
    ApiRoute(
        "POST",
        f"{_PATH}/upload",
        upload,
        {**_BASE, "tmpfilename": Param(pattern="/var/tmp/pveupload-[0-9a-f]+")},
        perm("/storage/{storage}", "Datastore.AllocateTemplate"),
    ),
    ApiRoute(
        "POST",
        f"{_PATH}/download-url",
        download,
        {
            **_BASE,
            "url": Param(optional=False, pattern="https?://.*"),
            "compression": Param(),
            "verify-certificates": Param(type="boolean"),
        },
        _may_download,
    ),
)
