"""
The web servers that nodes reach: the URLs in ``files`` of the world file.

A URL that is not listed answers 404 if the server has other files there, refuses the connection on
a loopback address, and otherwise serves an empty qcow2
image, so that images need not be listed.
"""

import gzip
import mimetypes
import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from moxwell.lab.proxmox.state import Row, SimRegion
from moxwell.lab.proxmox.volumes.images import qcow2_bytes

DEFAULT_BYTES = 1 << 20
MOST_BYTES = 64 << 20  # of a file that are kept in memory; the rest counts as zeros
REFUSED, NO_TLS = "refused", "no TLS"
_NAME = re.compile(r"^[^?]+/([^?/]*)(?:\?.*)?$")
_LWP = {
    REFUSED: "Connection refused",
    NO_TLS: "SSL connect attempt failed error:0A00010B:SSL routines::wrong version number",
}
_WGET = {
    REFUSED: "Connecting to {}... failed: Connection refused.",
    NO_TLS: "Unable to establish SSL connection.",
}
_TYPES = {
    ".iso": "application/x-iso9660-image",
    ".img": "application/octet-stream",
    ".gz": "application/gzip",
    ".xz": "application/x-xz",
    ".bz2": "application/x-bzip2",
    ".zst": "application/zstd",
    ".qcow2": "application/octet-stream",
}


@dataclass(frozen=True, slots=True)
class WebFile:
    """What a server answers."""

    url: str
    data: bytes
    size: int  # may be larger than the data: the rest is zeros
    virtual_size: int

    @property
    def mimetype(self) -> str:
        name = unquote(urlsplit(self.url).path.rpartition("/")[2])
        ending = "." + name.rpartition(".")[2]
        return _TYPES.get(ending) or mimetypes.guess_type(name)[0] or _TYPES[".img"]


@dataclass(frozen=True, slots=True)
class WebFailure:
    """A server that does not serve the file."""

    status: int  # 0: there is no connection
    phrase: str
    address: str

    @property
    def as_response(self) -> str:
        """The status line of Perl's LWP."""
        if self.status:
            return f"{self.status} {self.phrase}"
        return f"500 Can't connect to {self.address} ({_LWP[self.phrase]})"

    @property
    def as_download(self) -> str:
        """The last line of wget."""
        if self.status:
            return "download failed: exit code 8"
        return f"download failed: {_WGET[self.phrase].format(self.address)}"


def shown_name(url: str) -> str:
    """The file name that PVE reads from a URL, as it stands there."""
    match = _NAME.search(url)
    return match[1] if match is not None else ""


def fetch(region: SimRegion, url: str) -> WebFile | WebFailure:
    """GET a URL from a node of the region; a file server ignores the query."""
    parts = urlsplit(url)
    plain = f"{parts.scheme}://{parts.netloc}{unquote(parts.path)}"
    row = region.files.get(url) or region.files.get(plain)
    address = f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"
    servers = {urlsplit(other)[:2] for other in region.files}
    if row is not None and row.get("status", 200) != 200:
        return WebFailure(int(row["status"]), str(row.get("phrase", "Not Found")), address)
    if row is not None:
        return _content(url, row)
    if parts[:2] in servers:
        return WebFailure(404, "File not found", address)
    if parts.scheme == "https" and ("http", parts.netloc) in servers:
        return WebFailure(0, NO_TLS, address)
    if (parts.hostname or "").startswith("127.") or parts.hostname in ("::1", "localhost"):
        return WebFailure(0, REFUSED, address)
    return WebFile(url, qcow2_bytes(DEFAULT_BYTES), DEFAULT_BYTES, DEFAULT_BYTES)


def _content(url: str, row: Row) -> WebFile:
    size = int(row.get("size") or DEFAULT_BYTES)
    if "data" in row:
        data = str(row["data"]).encode()
        size = int(row.get("size") or len(data))
    elif row.get("qcow2"):
        data = qcow2_bytes(int(row["qcow2"]))
    else:
        data = (str(row.get("fill") or "\0").encode() * min(size, MOST_BYTES))[:size]
    if row.get("gzip"):
        data = gzip.compress(data, 6, mtime=0)  # as ``gzip -n``
        size = len(data)
    virtual = int(row.get("virtual_size") or row.get("qcow2") or size)
    return WebFile(url, data, size, virtual)
