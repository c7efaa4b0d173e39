"""Explains why Proxmox could not fetch or import an image: the field, and what to do. Pure."""

import re
from collections.abc import Iterable

from moxwell.errors import Invalid, MoxwellError, Retryable
from moxwell.pve import errors


class ImageUnavailable(Retryable):
    """A host could not download the image."""

    reason = "ImageUnavailable"


class ChecksumMismatch(Invalid):
    """The image has another checksum than expected; it was not kept."""

    reason = "ChecksumMismatch"


class ImageUnreadable(Invalid):
    """The image does not have the format of its name."""

    reason = "ImageUnreadable"


class ImportRefused(Invalid):
    """A storage does not accept images."""

    reason = "ImportRefused"


def _rows() -> Iterable[tuple[str, type[MoxwellError], str]]:
    yield (
        r"checksum mismatch|mismatch, got",
        ChecksumMismatch,
        "sourceImage.checksum: the image has another checksum: compare it with the publisher's "
        "list, the image may have been replaced",
    )
    yield (
        r"download failed|invalid server response|can't connect|404",
        ImageUnavailable,
        "sourceImage.url: the host could not download the image: check the URL and the host's "
        "network and proxy, or use a mirror",
    )
    yield (
        r"is not in \w+ format|invalid VMDK|failed to verify file|has no \.ovf",
        ImageUnreadable,
        "sourceImage.imageName: the image has another format than its name says: set a name that "
        "ends with .qcow2, .raw or .vmdk",
    )
    yield (
        r"not configured for content-type|does not support '.*' content|not a file based storage"
        r"|can't upload to storage",
        ImportRefused,
        "storageIDs: the storage accepts no imports: `pvesm set STORAGE --content …,import`",
    )


def explained(error: MoxwellError, where: str) -> MoxwellError:
    """The error with the field and what to do; an unknown one with the host."""
    text = str(error)
    for pattern, kind, advice in _rows():
        if re.search(pattern, text, re.IGNORECASE):
            return kind(f"{where}: {advice} ({text})")
    if isinstance(error, errors.PveError):
        return type(error)(error.message, status=error.status, where=where, fields=error.fields)
    return error
