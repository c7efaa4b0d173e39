"""
The checksum lists that publishers put beside their images. Pure, but for the function that reads.

Ubuntu has ``SHA256SUMS`` and Debian ``SHA512SUMS`` in the folder of the image, Flatcar a list of
several kinds at the URL of the image with ``.DIGESTS``. A line is ``DIGITS  FILE`` or
``DIGITS *FILE``; other lines, such as the comments and signatures of Flatcar, are ignored.
"""

import re
from collections.abc import Callable
from urllib.parse import urljoin, urlsplit

from moxwell.errors import Invalid, Missing, Unreachable

KINDS = {128: "sha512", 64: "sha256"}  # by number of digits, the strongest first
_LINE = re.compile(r"^([0-9a-f]{64}|[0-9a-f]{128})[ \t]+\*?(\S+)\s*$", re.MULTILINE)
ReadUrl = Callable[[str], str]  # raises Missing if there is nothing at the URL


def checksum_lists(url: str) -> tuple[str, ...]:
    """Where the list of an image may be."""
    folder = [urljoin(url, name) for name in ("SHA256SUMS", "SHA512SUMS")]
    return (f"{url}.DIGESTS", *folder) if "flatcar" in urlsplit(url).path else tuple(folder)


def find_checksum(text: str, name: str) -> str:
    """The checksum of a file in a list, as ``sha256:…``; empty if it is not there."""
    found = {len(m[1]): m[1] for m in _LINE.finditer(text) if m[2].removeprefix("./") == name}
    return next((f"{kind}:{found[size]}" for size, kind in KINDS.items() if size in found), "")


def published_checksum(url: str, read: ReadUrl) -> str:
    """The checksum that the publisher of an image names."""
    name = urlsplit(url).path.rpartition("/")[2]
    for listed in checksum_lists(url):
        try:
            text = read(listed)
        except Missing:
            continue
        except Unreachable as error:
            raise Unreachable(
                f"the checksum list {listed} cannot be read: {error}; read it elsewhere and use "
                "--checksum sha256:…"
            ) from error
        if found := find_checksum(text, name):
            return found
        raise Invalid(f"{listed} does not name {name}; use --checksum sha256:…")
    raise Missing(f"there is no checksum list beside {url}; use --checksum sha256:…")
