"""Image files of this machine: compression and checksum."""

import bz2
import gzip
import hashlib
import lzma
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from moxwell.cli.template_source import opened_source
from moxwell.controllers.infra.template_build.design import InvalidImage
from moxwell.controllers.infra.template_build.failures import ChecksumMismatch
from moxwell.lab.proxmox.volumes.images import qcow2_bytes

CONTENT = qcow2_bytes(1 << 30)


def zstd(data: bytes) -> bytes:
    if shutil.which("zstd") is None:
        pytest.skip("no zstd on this machine")
    return subprocess.run(["zstd", "-c"], input=data, capture_output=True, check=True).stdout


@pytest.mark.parametrize(
    ("ending", "pack"),
    [
        ("", bytes),
        (".gz", gzip.compress),
        (".xz", lzma.compress),
        (".bz2", bz2.compress),
        (".zst", zstd),
    ],
    ids=["plain", "gz", "xz", "bz2", "zst"],
)
def test_an_image_is_decompressed(
    ending: str, pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    path, data = tmp_path / f"node.qcow2{ending}", pack(CONTENT)
    path.write_bytes(data)
    with opened_source(str(path), hashlib.sha256(data).hexdigest(), "") as image:
        assert image.file is not None
        assert image.file.path.read_bytes() == CONTENT
        assert image.format == "qcow2"
    with pytest.raises(ChecksumMismatch), opened_source(str(path), f"sha256:{'0' * 64}", ""):
        raise AssertionError("it was opened")


@pytest.mark.parametrize("ending", [".gz", ".xz", ".bz2", ".zst"])
def test_a_broken_archive_is_refused(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"node.qcow2{ending}"
    path.write_bytes(b"no archive")
    with pytest.raises(InvalidImage), opened_source(str(path), "", ""):
        raise AssertionError("it was opened")
