"""
Files that come from outside: upload (bytes are kept) and download-url (a file of zeros, or of the
world's own making).

Names are normalised as PVE does; the extension decides what a file may be.
"""

import hashlib
import re

from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.errors import bad_params, die, forbidden
from moxwell.lab.proxmox.request_context import Call
from moxwell.lab.proxmox.route import Param, Route
from moxwell.lab.proxmox.route_permissions import perm
from moxwell.lab.proxmox.tasks import Work
from moxwell.lab.proxmox.volumes import names
from moxwell.lab.proxmox.volumes.volume_store import Stock

_PATH = "/nodes/{node}/storage/{storage}"
_EXTENSIONS = {
    "iso": re.compile(r"[^/]+\.(?:iso|img)", re.I),
    "vztmpl": re.compile(r"[^/]+\.tar\.(?:gz|xz|zst|bz2)", re.I),
    "import": re.compile(r"[a-zA-Z0-9\-.+=_]+\.(?:ova|qcow2|raw|vmdk)"),
}
_ALGORITHMS = ("md5", "sha1", "sha224", "sha256", "sha384", "sha512")
DEFAULT_BYTES = 1 << 20


def normal_name(name: str) -> str:
    """The last part of a path, odd characters replaced."""
    base = re.sub(r"^.*[/\\]", "", name)
    return re.sub(r"[^-a-zA-Z0-9_.]", "_", base)


def file_format(content: str, name: str) -> str:
    """The format that a content list shows."""
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


def upload(call: Call) -> str:
    """POST upload: the file of a multipart form, with its bytes."""
    storage_name, content = call.params["storage"], call.params["content"]
    place = Stock(call.desk, call.node)
    storage = place.enabled(storage_name)
    if not names.has_path(storage):
        raise die(f"can't upload to storage type '{storage.type}'")
    if call.upload is None:
        raise die("missing temporary file name")
    name, data = normal_name(call.params["filename"]), call.upload.data
    _check_name(content, name)
    if content not in storage.content:
        raise die(f"storage '{storage_name}' does not support '{content}' content")
    rest = f"{content}/{name}"
    temporary = f"/var/tmp/pveupload-{call.desk.random.getrandbits(128):032x}"

    async def worker(work: Work) -> None:
        work.log(f"starting file import from: {temporary}")
        _verify(call, data, work)
        target = names.path_of(storage, rest)
        work.log(f"target node: {call.node}\ntarget file: {target}\nfile size is: {len(data)}")
        work.log(f"command: cp -- {temporary} {target}")
        await work.sleep(len(data) / call.region.pace.bandwidth)
        place.put_file(storage_name, rest, content, file_format(content, name), data)
        work.log("finished file import successfully")

    return call.spawn("imgcopy", "", worker)


def _verify(call: Call, data: bytes, work: Work) -> None:
    algorithm, wanted = call.get("checksum-algorithm"), call.get("checksum")
    if not algorithm:
        return
    got = hashlib.new(algorithm, data).hexdigest()
    if got.lower() != str(wanted).lower():
        work.log("calculating checksum...")
        raise die(f"checksum mismatch: got '{got}' != expect '{wanted}'")
    work.log("calculating checksum...OK, checksum verified")


def download(call: Call) -> str:
    """POST download-url: what the address gives is the world's ``files``, else zeros."""
    storage_name, content = call.params["storage"], call.params["content"]
    place = Stock(call.desk, call.node)
    storage = place.enabled(storage_name)
    if not names.has_path(storage):
        raise die(f"can't upload to storage type '{storage.type}', not a file based storage!")
    if content not in storage.content:
        raise die(f"storage '{storage_name}' is not configured for content-type '{content}'")
    name, url = normal_name(call.params["filename"]), call.params["url"]
    _check_name(content, name)
    rest = f"{content}/{name}"

    async def worker(work: Work) -> None:
        work.log(f"downloading {url} to {names.path_of(storage, rest)}")
        row = call.region.files.get(url, {})
        if row.get("status", 200) != 200:
            raise die(f"download failed: 404 Not Found for {url}")
        size = int(row.get("size", DEFAULT_BYTES))
        await work.sleep(size / call.region.pace.bandwidth)
        data = bytes(row["data"], "utf-8") if "data" in row else bytes(min(size, DEFAULT_BYTES))
        if row:
            _verify(call, data, work)
        volid = place.put_file(storage_name, rest, content, file_format(content, name), data)
        volume = place.get(volid)
        volume.size = int(row.get("virtual_size", size))
        place.occupy(volid, size)
        work.log("download of '{url}' finished".replace("{url}", url))

    return call.spawn("download", name, worker)


def _may_download(call: Call) -> None:
    call.check(f"/storage/{call.params['storage']}", "Datastore.AllocateTemplate")
    if call.may("/", "Sys.Audit", "Sys.Modify"):
        return
    if not call.may(f"/nodes/{call.params['node']}", "Sys.AccessNetwork"):
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
ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        f"{_PATH}/upload",
        upload,
        {**_BASE, "tmpfilename": Param(pattern="/var/tmp/pveupload-[0-9a-f]+")},
        perm("/storage/{storage}", "Datastore.AllocateTemplate"),
    ),
    Route(
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
