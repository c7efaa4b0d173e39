"""
Downloads the programs of control planes and verifies their checksums: ``control-plane install``.

kube-apiserver, kube-controller-manager and kube-scheduler are files of a Kubernetes release with a
checksum beside each; etcd and etcdutl are in an archive with a list of checksums;
konnectivity-server is published as a container image only, whose parts are named by their digests.
All servers can be mirrors. A program is moved to its place when it is complete, so an interrupted
download leaves nothing behind.
"""

import hashlib
import io
import platform
import re
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import aiohttp

from moxwell.atomic_file import write_private
from moxwell.embedded.controlplanes.binaries.image_layers import find_in_layer, image_layers
from moxwell.embedded.controlplanes.binaries.installed import PROGRAMS
from moxwell.errors import Invalid, Missing, Unreachable

KUBERNETES_MIRROR = "https://dl.k8s.io"
ETCD_MIRROR = "https://github.com/etcd-io/etcd/releases/download"
ETCD_VERSION = "v3.6.10"
IMAGE_REGISTRY = "https://registry.k8s.io"
KONNECTIVITY_IMAGE, KONNECTIVITY_VERSION = "kas-network-proxy/proxy-server", "v0.34.0"
KONNECTIVITY, ETCD_PROGRAMS = "konnectivity-server", ("etcd", "etcdutl")
MAX_BYTES = 512 << 20
TIMEOUT = aiohttp.ClientTimeout(total=1800, sock_read=60)
_VERSION = re.compile(r"v\d+\.\d+\.\d+")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class ProgramChecksumMismatch(Invalid):
    """A downloaded file is not what its publisher lists."""

    reason = "ChecksumMismatch"


@dataclass(frozen=True, slots=True)
class DownloadRequest:
    """What is downloaded, from where, into which folder."""

    version: str
    folder: Path
    kubernetes_mirror: str = KUBERNETES_MIRROR
    etcd_mirror: str = ETCD_MIRROR
    etcd_version: str = ETCD_VERSION
    image_registry: str = IMAGE_REGISTRY
    konnectivity: bool = False

    def check(self) -> None:
        """Refuse versions that are none."""
        for what, text in (("Kubernetes", self.version), ("etcd", self.etcd_version)):
            if not _VERSION.fullmatch(text):
                raise Invalid(f"{text!r} is not a version of {what} such as v1.36.3")

    def program(self, name: str) -> Path:
        """Where a program is installed; control planes find it there."""
        version = self.etcd_version if name in ETCD_PROGRAMS else self.version
        if name == KONNECTIVITY:
            version = KONNECTIVITY_VERSION
        return self.folder / f"{name}-{version}" / name


def architecture() -> str:
    """The name of this machine's architecture in releases."""
    found = _ARCHITECTURES.get(platform.machine())
    if found is None:
        raise Invalid(f"there are no releases for {platform.machine()}: build the programs")
    return found


async def install(request: DownloadRequest, report: Callable[[str], None]) -> None:
    """Install what is not installed yet."""
    request.check()
    async with aiohttp.ClientSession(timeout=TIMEOUT) as session:
        extra = (KONNECTIVITY,) if request.konnectivity else ()
        for name in (*PROGRAMS, *ETCD_PROGRAMS, *extra):
            path = request.program(name)
            if path.exists():
                report(f"{name} is installed: {path}")
                continue
            report(f"downloading {name}")
            _place(path, await _program(session, request, name))
            report(f"{name}: {path}")


async def _program(session: aiohttp.ClientSession, request: DownloadRequest, name: str) -> bytes:
    if name != KONNECTIVITY:
        data = await _verified(session, request, name)
        return _from_archive(data, name) if name in ETCD_PROGRAMS else data
    base = f"{request.image_registry.rstrip('/')}/v2/{KONNECTIVITY_IMAGE}"
    get = partial(get_file, session)
    layers = await image_layers(get, base, KONNECTIVITY_VERSION, architecture())
    for layer in reversed(layers):
        found = find_in_layer(layer, "proxy-server")
        if found:
            return found
    raise Invalid(f"the image {KONNECTIVITY_IMAGE} has no program proxy-server")


async def _verified(session: aiohttp.ClientSession, request: DownloadRequest, name: str) -> bytes:
    """The file as published; ProgramChecksumMismatch if it differs."""
    if name in ETCD_PROGRAMS:
        folder = f"{request.etcd_mirror.rstrip('/')}/{request.etcd_version}"
        file = f"etcd-{request.etcd_version}-linux-{architecture()}.tar.gz"
        sums = (await get_file(session, f"{folder}/SHA256SUMS")).decode(errors="replace")
        expected = _listed(sums).get(file, "")
        url = f"{folder}/{file}"
    else:
        mirror = request.kubernetes_mirror.rstrip("/")
        url = f"{mirror}/{request.version}/bin/linux/{architecture()}/{name}"
        text = (await get_file(session, f"{url}.sha256")).decode(errors="replace")
        expected = text.split()[0] if text.split() else ""
    if not re.fullmatch(r"[0-9a-f]{64}", expected):
        raise ProgramChecksumMismatch(f"the server lists no SHA-256 of {url}")
    data = await get_file(session, url)
    if hashlib.sha256(data).hexdigest() != expected:
        raise ProgramChecksumMismatch(f"{url} differs from its checksum; nothing was installed")
    return data


def _listed(text: str) -> dict[str, str]:
    """The checksums of a list, by file."""
    rows = (line.split() for line in text.splitlines())
    return {row[1]: row[0] for row in rows if len(row) == 2}


async def get_file(
    session: aiohttp.ClientSession, url: str, headers: Mapping[str, str] | None = None
) -> bytes:
    """A file of a server, of limited size."""
    try:
        async with session.get(url, headers=headers) as answer:
            if answer.status == 404:
                raise Missing(f"{url} does not exist: check the version and the mirror")
            if answer.status != 200:
                raise Unreachable(f"{url} answers {answer.status}")
            data = bytearray()
            async for part in answer.content.iter_chunked(1 << 20):
                data += part
                if len(data) > MAX_BYTES:
                    raise Invalid(f"{url} is larger than {MAX_BYTES >> 20} MiB")
            return bytes(data)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise Unreachable(f"{url} cannot be read: {type(error).__name__}") from error


def _from_archive(data: bytes, name: str) -> bytes:
    """One program of an archive; nothing else is extracted."""
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
            for member in archive:
                if member.isfile() and member.name.rpartition("/")[2] == name:
                    found = archive.extractfile(member)
                    return found.read() if found else b""
    except (tarfile.TarError, EOFError, OSError) as error:
        raise Invalid(f"the archive of etcd cannot be read: {type(error).__name__}") from error
    raise Invalid(f"the archive has no program {name}")


def _place(path: Path, data: bytes) -> None:
    """Write a program; it exists only when it is complete and can be executed."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    partial = path.with_name(f".{path.name}.partial")
    write_private(partial, data)
    partial.chmod(0o755)
    partial.replace(path)
