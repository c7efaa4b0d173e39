"""Makes container images without a registry: OCI archives of layers with busybox or programs."""

import hashlib
import io
import json
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


def write_archive(
    path: Path, busybox: bytes, commands: Mapping[str, Sequence[str]] = COMMANDS
) -> None:
    """Write an archive with an image for each command, for ``ctr images import``."""
    with tempfile.TemporaryDirectory() as folder:
        layer = Path(folder) / "layer.tar"
        layer.write_bytes(_layer(busybox))
        configs = {
            name: {"Entrypoint": list(command), "Env": ["PATH=/bin"]}
            for name, command in commands.items()
        }
        made = {name: LocalImage((layer,), settings) for name, settings in configs.items()}
        write_images(path, made)


@dataclass(frozen=True, slots=True)
class LocalImage:
    """The layers of an image, the lowest first, and the settings of its processes."""

    layers: tuple[Path, ...]
    settings: Mapping[str, Any]


def write_program_layer(path: Path, program: Path, name: str) -> Path:
    """A layer with one program."""
    with tarfile.open(path, "w") as archive:
        _add(archive, name.lstrip("/"), program.read_bytes(), 0o755)
    return path


def _part(layer: Path) -> dict[str, Any]:
    with layer.open("rb") as file:
        digest = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    return {"mediaType": f"{OCI}.layer.v1.tar", "digest": digest, "size": layer.stat().st_size}


def write_images(path: Path, images: Mapping[str, LocalImage]) -> None:
    """Write an archive with images by name; layers that several have are in it once."""
    layers = {layer: _part(layer) for image in images.values() for layer in image.layers}
    blobs: dict[str, bytes] = {}
    manifests = []
    for name, image in images.items():
        parts = [layers[layer] for layer in image.layers]
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": image.settings,
            "rootfs": {"type": "layers", "diff_ids": [part["digest"] for part in parts]},
        }
        text = json.dumps(config).encode()
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{OCI}.manifest.v1+json",
            "config": _descriptor("config.v1+json", text),
            "layers": parts,
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
        for layer, part in layers.items():
            archive.add(layer, f"blobs/{part['digest'].replace(':', '/')}")
