"""``moxwell control-plane install`` from a mirror on loopback: verified, complete, or nothing."""

import hashlib
import io
import json
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from moxwell.embedded.controlplanes.binaries import download
from moxwell.embedded.controlplanes.binaries.download import (
    DownloadRequest,
    ProgramChecksumMismatch,
)
from moxwell.embedded.controlplanes.binaries.installed import PROGRAMS, InstalledReleases
from moxwell.errors import Invalid, Missing, MoxwellError, Unreachable

VERSION = "v1.36.9"
SCRIPT = f"#!/bin/sh\necho Kubernetes {VERSION}\n".encode()


ETCD = ("etcd-v3.6.10-linux/etcd", "etcd-v3.6.10-linux/etcdutl")


def archive(*names: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as made:
        for name in names or ETCD:
            info = tarfile.TarInfo(name)
            info.size = len(SCRIPT)
            made.addfile(info, io.BytesIO(SCRIPT))
    return buffer.getvalue()


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def image(architecture: str = "") -> dict[str, bytes]:
    """An image of konnectivity-server with two layers, behind an index of architectures."""
    base = f"/v2/{download.KONNECTIVITY_IMAGE}"
    layers = [archive("etc/passwd"), archive("proxy-server")]
    manifest = json.dumps({"layers": [{"digest": digest(layer)} for layer in layers]}).encode()
    platform = {"os": "linux", "architecture": architecture or download.architecture()}
    rows = [{"digest": digest(manifest), "platform": platform}]
    files = {f"{base}/blobs/{digest(layer)}": layer for layer in layers}
    files[f"{base}/manifests/{digest(manifest)}"] = manifest
    tag = f"{base}/manifests/{download.KONNECTIVITY_VERSION}"
    return {**files, tag: json.dumps({"manifests": rows}).encode()}


def published() -> dict[str, bytes]:
    """The files of a mirror by path."""
    arch = download.architecture()
    files = {}
    for name in PROGRAMS:
        path = f"/{VERSION}/bin/linux/{arch}/{name}"
        files[path] = SCRIPT
        files[f"{path}.sha256"] = hashlib.sha256(SCRIPT).hexdigest().encode()
    data, file = archive(), f"etcd-v3.6.10-linux-{arch}.tar.gz"
    files[f"/v3.6.10/{file}"] = data
    files["/v3.6.10/SHA256SUMS"] = f"{hashlib.sha256(data).hexdigest()}  {file}\n".encode()
    return files


@asynccontextmanager
async def mirror(files: dict[str, bytes]) -> AsyncIterator[str]:
    async def answer(request: web.Request) -> web.Response:
        body = files.get(request.path)
        return web.Response(body=body) if body is not None else web.Response(status=404)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield str(site.name).rstrip("/").replace(":0", f":{runner.addresses[0][1]}")
    finally:
        await runner.cleanup()


async def installed(
    files: dict[str, bytes], folder: Path, *, konnectivity: bool = False
) -> list[str]:
    said: list[str] = []
    async with mirror(files) as url:
        request = DownloadRequest(
            VERSION, folder, url, url, image_registry=url, konnectivity=konnectivity
        )
        await download.install(request, said.append)
    return said


async def test_what_is_installed_is_found_by_control_planes(tmp_path: Path) -> None:
    await installed(published(), tmp_path)
    found = InstalledReleases([tmp_path])
    assert await found.newest() == VERSION
    assert found.etcd() == tmp_path / "etcd-v3.6.10" / "etcd"
    again = await installed({}, tmp_path)
    assert all("is installed" in line for line in again)


async def test_konnectivity_server_comes_out_of_its_image(tmp_path: Path) -> None:
    await installed(published() | image(), tmp_path, konnectivity=True)
    found = InstalledReleases([tmp_path]).konnectivity()
    assert found.read_bytes() == SCRIPT
    assert found.stat().st_mode & 0o777 == 0o755


async def test_an_image_that_is_wrong_is_refused(tmp_path: Path) -> None:
    files = image()
    changed = {p: d + b" " if "/blobs/" in p else d for p, d in files.items()}
    with pytest.raises(Invalid, match="other data than sha256:"):
        await installed(published() | changed, tmp_path, konnectivity=True)
    with pytest.raises(Invalid, match="does not exist for linux/"):
        await installed(published() | image("s390x"), tmp_path, konnectivity=True)
    tag = next(p for p in files if p.endswith(download.KONNECTIVITY_VERSION))
    with pytest.raises(Invalid, match="not a manifest"):
        await installed(published() | {tag: b"<html>"}, tmp_path, konnectivity=True)
    with pytest.raises(Invalid, match="not a container image"):
        await installed(published() | {tag: b"{}"}, tmp_path, konnectivity=True)
    assert not has_program(tmp_path, "konnectivity-server")


def has_program(folder: Path, name: str) -> bool:
    return any(folder.glob(f"{name}-*"))


async def test_a_file_that_differs_from_its_checksum_is_not_installed(tmp_path: Path) -> None:
    files = published()
    path = next(p for p in files if p.endswith("/kube-scheduler"))
    files[path] += b"more"
    with pytest.raises(ProgramChecksumMismatch, match="kube-scheduler"):
        await installed(files, tmp_path)
    assert not has_program(tmp_path, "kube-scheduler")
    await installed(published(), tmp_path)
    assert await InstalledReleases([tmp_path]).newest() == VERSION


def without(files: dict[str, bytes], end: str, *, data: bytes | None = None) -> dict[str, bytes]:
    kept = {path: body for path, body in files.items() if not path.endswith(end)}
    return kept if data is None else kept | {p: data for p in files if p.endswith(end)}


FAILURES: list[tuple[str, bytes | None, type[MoxwellError]]] = [
    ("kube-apiserver", None, Missing),
    ("kube-apiserver.sha256", b"", ProgramChecksumMismatch),
    ("kube-apiserver.sha256", b"<html>", ProgramChecksumMismatch),
    ("SHA256SUMS", b"0 other\n", ProgramChecksumMismatch),
    (".tar.gz", b"", ProgramChecksumMismatch),
]


@pytest.mark.parametrize("end, data, error", FAILURES)
async def test_a_mirror_that_is_wrong_is_reported(
    tmp_path: Path, end: str, data: bytes | None, error: type[MoxwellError]
) -> None:
    with pytest.raises(error):
        await installed(without(published(), end, data=data), tmp_path)


async def test_an_archive_without_etcd_is_refused(tmp_path: Path) -> None:
    files = published()
    for data in (archive("etcd-v3.6.10-linux/etcdctl"), b"no archive"):
        for path in files:
            if path.endswith(".tar.gz"):
                files[path] = data
                line = f"{hashlib.sha256(data).hexdigest()}  {path.rpartition('/')[2]}\n"
                files["/v3.6.10/SHA256SUMS"] = line.encode()
        with pytest.raises(Invalid, match="archive"):
            await installed(files, tmp_path)


async def test_no_mirror_is_a_retryable_error(tmp_path: Path) -> None:
    request = DownloadRequest(VERSION, tmp_path, "http://127.0.0.1:9", "http://127.0.0.1:9")
    with pytest.raises(Unreachable):
        await download.install(request, lambda line: None)


@pytest.mark.parametrize("version", ["1.36.9", "latest", "v1.36", "v1.36.9/../x"])
async def test_what_is_no_version_is_refused(tmp_path: Path, version: str) -> None:
    with pytest.raises(Invalid, match="not a version"):
        await download.install(DownloadRequest(version, tmp_path), lambda line: None)
