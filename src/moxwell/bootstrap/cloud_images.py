"""The cloud images that ``moxwell template build`` knows by name. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from moxwell.errors import Missing

_UBUNTU = "https://cloud-images.ubuntu.com/{0}/current/{0}-server-cloudimg-amd64.img"
_DEBIAN = "https://cloud.debian.org/images/cloud/{1}/latest/debian-{0}-genericcloud-amd64.qcow2"
_FLATCAR = (
    "https://stable.release.flatcar-linux.net/amd64-usr/current/"
    "flatcar_production_proxmoxve_image.img"
)
IMAGE_URLS: Mapping[str, str] = {
    "ubuntu-24.04": _UBUNTU.format("noble"),
    "ubuntu-22.04": _UBUNTU.format("jammy"),
    "debian-13": _DEBIAN.format("13", "trixie"),
    "debian-12": _DEBIAN.format("12", "bookworm"),
    "flatcar": _FLATCAR,
}


@dataclass(frozen=True, slots=True)
class CloudImage:
    """The URL of an image, and the operating system as a tag; empty if it is not known."""

    url: str
    os: str = ""


def find_image(text: str, mirror: str = "") -> CloudImage:
    """An image by name or URL; ``mirror`` replaces scheme and host of a known name."""
    if text.startswith(("http://", "https://")):
        return CloudImage(text)
    url = IMAGE_URLS.get(text)
    if url is None:
        raise Missing(
            f"no image {text!r} is known; use a URL or one of {', '.join(sorted(IMAGE_URLS))}"
        )
    if mirror:
        url = mirror.rstrip("/") + urlsplit(url).path
    return CloudImage(url, text)
