"""POST download-url and GET query-url-metadata: files from the web servers of the world file."""

import hashlib

from moxwell.lab.proxmox.errors import PveException, die
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import both, either, perm
from moxwell.lab.proxmox.state import Row, SimStorage
from moxwell.lab.proxmox.tasks import WorkerContext
from moxwell.lab.proxmox.volumes import names, web
from moxwell.lab.proxmox.volumes.decompression import decompress, tool_for
from moxwell.lab.proxmox.volumes.images import check_image, virtual_size
from moxwell.lab.proxmox.volumes.transfer import check_name, file_format, normalize_name
from moxwell.lab.proxmox.volumes.volume_store import VolumeStore


def download(call: PveCall) -> str:
    """POST download-url."""
    storage_name, content = call.params["storage"], call.params["content"]
    storage = VolumeStore(call.runtime, call.node).get_enabled(storage_name)
    if not names.has_path(storage):
        raise die(f"can't upload to storage type '{storage.type}', not a file based storage!")
    if content not in storage.content:
        raise die(f"storage '{storage_name}' is not configured for content-type '{content}'")
    name = normalize_name(call.params["filename"])
    check_name(content, name, call.major)

    async def worker(ctx: WorkerContext) -> None:
        await _FileDownload(call, ctx, storage, name).run()

    return call.spawn("download", name, worker)


class _FileDownload:
    """One download; the order of checks is that of PVE::Tools::download_file_from_url."""

    def __init__(self, call: PveCall, ctx: WorkerContext, storage: SimStorage, name: str) -> None:
        self._call, self._ctx, self._name = call, ctx, name
        self._content: str = call.params["content"]
        self._rest = f"{self._content}/{name}"
        self._path = names.path_of(storage, self._rest)
        self._store = VolumeStore(call.runtime, call.node)
        self._process = call.runtime.random.randrange(1000, 65536)

    async def run(self) -> None:
        tool = self._decompressor()
        url = self._call.params["url"]
        self._ctx.log(f"downloading {url} to {self._path}")
        if self._exists():
            return
        found = web.fetch(self._call.region, url)
        if isinstance(found, web.WebFailure):
            raise die(found.as_download)
        await self._ctx.sleep(found.size / self._call.region.pace.bandwidth)
        self._verify(found)
        data, size = found.data, found.size
        if tool is not None:
            data = self._decompress(tool, data)
            size = len(data)
        self._keep(data, size, found.virtual_size)
        self._ctx.log(f"download of '{url}' to '{self._path}' finished")

    def _decompressor(self) -> str | None:
        compression = self._call.get("compression")
        if not compression:
            return None
        if self._content != "iso":
            raise die(f"decompression not supported for {self._content}")
        return tool_for(compression)

    def _exists(self) -> bool:
        """Whether the right file is there already."""
        old = self._store.find(f"{self._call.params['storage']}:{self._rest}")
        if old is None:
            return False
        algorithm, wanted = self._call.get("checksum-algorithm"), self._call.get("checksum")
        if not algorithm:
            raise die(f"refusing to override existing file '{self._path}'")
        got = hashlib.new(algorithm, old.data or bytes(min(old.size, web.MOST_BYTES))).hexdigest()
        if got != str(wanted).lower():
            self._ctx.log("calculating checksum of existing file...")
            raise die(f"checksum mismatch: got '{got}' != expect '{wanted}', aborting")
        self._ctx.log(
            "calculating checksum of existing file...OK, got correct file already,"
            " no need to download"
        )
        return True

    def _verify(self, found: web.WebFile) -> None:
        algorithm, wanted = self._call.get("checksum-algorithm"), self._call.get("checksum")
        if not algorithm:
            return
        got = hashlib.new(algorithm, found.data).hexdigest()
        if got != str(wanted).lower():
            self._ctx.log("calculating checksum...")
            raise die(f"checksum mismatch: got '{got}' != expect '{wanted}'")
        self._ctx.log("calculating checksum...OK, checksum verified")

    def _decompress(self, tool: str, data: bytes) -> bytes:
        temporary = f"{self._path}.tmp_dwnl.{self._process}"
        self._ctx.log(f"decompressing {temporary} to {self._path}.tmp_dcom.{self._process}")
        return decompress(tool, data, temporary)

    def _keep(self, data: bytes, size: int, virtual: int) -> None:
        form = file_format(self._content, self._name)
        if self._content == "import":
            try:
                check_image(form, data, f"{self._path}.tmp_dwnl.{self._process}")
            except PveException as problem:
                raise die(f"failed to verify file: {problem.message}") from problem
        storage = self._call.params["storage"]
        volid = self._store.put_file(storage, self._rest, self._content, form, data)
        self._store.get(volid).size = virtual_size(form, data) or max(size, virtual)
        self._store.set_used(volid, size)


def query_metadata(call: PveCall) -> Row:
    """GET query-url-metadata."""
    found = web.fetch(call.region, call.params["url"])
    if isinstance(found, web.WebFailure):
        raise die(f"invalid server response: '{found.as_response}'")
    row = {"filename": web.shown_name(call.params["url"]), "size": found.size}
    return {key: value for key, value in row.items() if value} | {"mimetype": found.mimetype}


_NETWORK = either(perm("/", "Sys.Audit", "Sys.Modify"), perm("/nodes/{node}", "Sys.AccessNetwork"))
ROUTES: tuple[ApiRoute, ...] = (
    ApiRoute(
        "POST",
        "/nodes/{node}/storage/{storage}/download-url",
        download,
        permission=both(perm("/storage/{storage}", "Datastore.AllocateTemplate"), _NETWORK),
    ),
    ApiRoute("GET", "/nodes/{node}/query-url-metadata", query_metadata, permission=_NETWORK),
)
