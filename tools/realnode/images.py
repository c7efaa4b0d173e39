"""Makes container images without a registry: one layer with busybox, as an OCI archive."""

import hashlib
import io
import json
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PAUSE, SHELL = "localhost/pause:1", "localhost/shell:1"
DEFAULT_PAUSE = "localhost/pause:3.6"  # of Debian's containerd, with another repository
FOREVER = ("sleep", "2147483647")
COMMANDS: Mapping[str, Sequence[str]] = {PAUSE: FOREVER, DEFAULT_PAUSE: FOREVER, SHELL: ("sh",)}
APPLETS = ("sh", "sleep", "echo", "cat", "ls", "df", "mount", "wget", "sync")
OCI = "application/vnd.oci.image"


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _descriptor(kind: str, data: bytes) -> dict[str, Any]:
    return {"mediaType": f"{OCI}.{kind}", "digest": _digest(data), "size": len(data)}


def _add(archive: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    archive.addfile(entry, io.BytesIO(data))


def _layer(busybox: bytes) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        _add(archive, "bin/busybox", busybox, 0o755)
        for applet in APPLETS:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
    return made.getvalue()


def write_archive(path: Path, busybox: bytes) -> None:
    """Write an archive with all images, for ``ctr images import``."""
    with tempfile.TemporaryDirectory() as folder:
        layer = Path(folder) / "layer.tar"
        layer.write_bytes(_layer(busybox))
        configs = {
            name: {"Entrypoint": list(command), "Env": ["PATH=/bin"]}
            for name, command in COMMANDS.items()
        }
        write_images(path, layer, configs)


def write_images(path: Path, layer: Path, configs: Mapping[str, Mapping[str, Any]]) -> None:
    """Write an archive with images of one layer; ``configs`` are their names and settings."""
    with layer.open("rb") as file:
        digest = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    part = {"mediaType": f"{OCI}.layer.v1.tar", "digest": digest, "size": layer.stat().st_size}
    blobs: dict[str, bytes] = {}
    manifests = []
    for name, settings in configs.items():
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": settings,
            "rootfs": {"type": "layers", "diff_ids": [digest]},
        }
        text = json.dumps(config).encode()
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{OCI}.manifest.v1+json",
            "config": _descriptor("config.v1+json", text),
            "layers": [part],
        }
        body = json.dumps(manifest).encode()
        blobs |= {_digest(text): text, _digest(body): body}
        names = {"io.containerd.image.name": name}
        manifests.append(_descriptor("manifest.v1+json", body) | {"annotations": names})
    with tarfile.open(path, "w") as archive:
        _add(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        index = {"schemaVersion": 2, "manifests": manifests}
        _add(archive, "index.json", json.dumps(index).encode())
        for name, data in blobs.items():
            _add(archive, f"blobs/{name.replace(':', '/')}", data)
        archive.add(layer, f"blobs/{digest.replace(':', '/')}")
