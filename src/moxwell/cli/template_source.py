"""Prepares image files of this machine for ``moxwell template import``: checksum, decompression."""

import bz2
import gzip
import hashlib
import lzma
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from moxwell.bootstrap.published_checksums import published_checksum
from moxwell.controllers.infra.template_build.design import InvalidImage, LocalImage, TemplateImage
from moxwell.controllers.infra.template_build.failures import ChecksumMismatch
from moxwell.errors import Missing, Unreachable

_FILES: dict[str, type[Any]] = {".gz": gzip.GzipFile, ".xz": lzma.LZMAFile, ".bz2": bz2.BZ2File}
PUBLISHED = "published"
LIST_SECONDS, MAX_LIST_BYTES = 30, 1 << 20
_BY_LENGTH = {32: "md5", 40: "sha1", 56: "sha224", 64: "sha256", 96: "sha384", 128: "sha512"}


def parse_checksum(text: str) -> tuple[str, str]:
    """Type and hexadecimal digits of ``sha256:…``; without a type the length tells it."""
    kind, colon, digits = text.rpartition(":")
    if text and not colon:
        kind = _BY_LENGTH.get(len(text), "")
        if not kind:
            raise InvalidImage("--checksum has an unknown length; write it as sha256:…")
    return kind.lower(), digits


def read_list(url: str) -> str:
    """A checksum list of a publisher."""
    try:
        with urllib.request.urlopen(url, timeout=LIST_SECONDS) as answer:
            return str(answer.read(MAX_LIST_BYTES).decode(errors="replace"))
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 404:
            raise Missing(f"{url} does not exist") from error
        raise Unreachable(f"HTTP status {error.code}") from error
    except OSError as error:
        raise Unreachable(str(error)) from error


def known_checksum(url: str, text: str) -> tuple[str, str]:
    """Type and digits of ``--checksum``; ``published`` reads the list of the publisher."""
    return parse_checksum(published_checksum(url, read_list) if text == PUBLISHED else text)


@contextmanager
def opened_source(text: str, checksum: str, name: str) -> Iterator[TemplateImage]:
    """A file, decompressed while the block runs, or a volume ``STORAGE:import/FILE``."""
    path = Path(text)
    if path.is_file():
        kind, digits = parse_checksum(checksum)
        if digits and hash_of(path, kind) != digits.lower():
            raise ChecksumMismatch(f"the {kind} of {text} is not that of --checksum")
        with TemporaryDirectory(prefix="moxwell-image-") as folder:
            yield _local(_decompressed(path, Path(folder)), name)
    elif ":" in text and not text.startswith(("/", ".")):
        yield TemplateImage(volume=text)
    else:
        raise Missing(f"there is no file {text}; a volume is written as STORAGE:import/FILE")


def _decompressed(path: Path, folder: Path) -> Path:
    if path.suffix.lower() == ".zst":
        return _zstd(path, folder / path.stem)
    opener = _FILES.get(path.suffix.lower())
    if opener is None:
        return path
    target = folder / path.stem
    try:
        with opener(path) as packed, target.open("wb") as plain:
            shutil.copyfileobj(packed, plain, 1 << 20)
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise InvalidImage(f"{path} cannot be decompressed: {error}") from error
    return target


def _zstd(path: Path, target: Path) -> Path:
    """Decompress with the program: Python has no module for zstd before 3.14."""
    if shutil.which("zstd") is None:
        raise InvalidImage(f"{path} is compressed with zstd, which is not installed here")
    command = ["zstd", "--decompress", "--quiet", "-o", str(target), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InvalidImage(f"{path} cannot be decompressed: {done.stderr.strip()}")
    return target


def _local(path: Path, name: str) -> TemplateImage:
    file = LocalImage(path, path.stat().st_size, hash_of(path, "sha256"))
    image = TemplateImage(file=file, name=name)
    image.check()
    return image


def hash_of(path: Path, kind: str) -> str:
    """The hexadecimal hash of a file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, kind).hexdigest()
    except ValueError as error:
        raise InvalidImage(f"--checksum: unknown type {kind!r}; use sha256:…") from error
