"""
The desired template: image, storages, hardware, tags. Pure.

The revision is a hash of what cannot change in place; a template with another revision is replaced.
It is a line of the description, and image files are named by the owner and the image, so that an
interrupted build finds what it has made.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from moxwell.bootstrap.baking import DHCP, BuilderNetwork, user_data
from moxwell.bootstrap.node_software import NodeSoftware
from moxwell.errors import Invalid
from moxwell.pve.ownership import FAMILY_TAG, Mark, is_reserved_tag
from moxwell.scheduling.vmids import VmidRange

TEMPLATE_TAG = f"{FAMILY_TAG}-template"  # set on templates that Moxwell made
REVISION_TAG = f"{FAMILY_TAG}-rev-"  # and the revision: set on templates that Moxwell made
TEMPLATE_VMIDS = VmidRange(9_000, 9_999)
FORMATS = ("qcow2", "raw", "vmdk")
COMPRESSIONS = ("gz", "xz", "bz2", "zst", "lzo", "zip")
_REVISION = re.compile(r"^\s*moxwell-template=(\w+)/(\d{1,10})\s*$", re.MULTILINE)
_SEALED = re.compile(r"^\s*moxwell-sealed=1\s*$", re.MULTILINE)
_NAME = re.compile(r"(?!.{64})[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9-]*[A-Za-z0-9])*")
_TAG = re.compile(r"[a-z0-9_][a-z0-9_+.-]*")
_LENGTHS = {"md5": 32, "sha1": 40, "sha224": 56, "sha256": 64, "sha384": 96, "sha512": 128}
_IN_REVISION = ("bios", "efidisk0", "tpmstate0")


class InvalidImage(Invalid):
    """The image of a template is not described correctly; the text names the field."""

    reason = "InvalidImage"


class InvalidTemplate(Invalid):
    """The name or a tag of a template is not valid in Proxmox."""

    reason = "InvalidTemplate"


@dataclass(frozen=True, slots=True)
class LocalImage:
    """An image file on this machine."""

    path: Path
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class TemplateImage:
    """A cloud image: one of ``url``, ``volume`` (on a storage) and ``file`` is set."""

    url: str = ""
    volume: str = ""
    file: LocalImage | None = None
    checksum: str = ""
    checksum_type: str = ""
    name: str = ""  # file name with extension; empty: that of the URL or file

    @property
    def original_name(self) -> str:
        path = self.file.path.name if self.file else unquote(urlsplit(self.url).path)
        return self.name or path.rpartition("/")[2]

    @property
    def format(self) -> str:
        """The format by the extension; cloud images named ``.img`` are in qcow2 format."""
        ending = self.original_name.rpartition(".")[2].lower()
        return "qcow2" if ending == "img" else ending

    @property
    def identity(self) -> str:
        """What makes it another image."""
        content = self.file.sha256 if self.file else self.url or self.volume
        return "|".join((content, self.checksum.lower(), self.format if not self.volume else ""))

    def check(self) -> None:
        """Refuse what Proxmox cannot import, before anything is made."""
        if self.volume:
            if not re.fullmatch(r"[^:\s]+:\S+", self.volume):
                raise InvalidImage(f"{self.volume!r} is not a volume: use STORAGE:import/FILE")
            return
        if self.format in COMPRESSIONS:
            raise InvalidImage(
                f"{self.original_name!r} is compressed, which Proxmox cannot import from a URL: "
                "use an uncompressed image, or decompress it with `moxwell template import`"
            )
        if self.format not in FORMATS:
            raise InvalidImage(
                f"the image {self.original_name!r} has no known format: set imageName "
                "(--image-name) to a file name that ends with .qcow2, .raw or .vmdk"
            )
        self._check_checksum()

    def _check_checksum(self) -> None:
        if bool(self.checksum) != bool(self.checksum_type):
            raise InvalidImage("checksum and checksumType must be set together")
        wanted = _LENGTHS.get(self.checksum_type, 0)
        if self.checksum and not re.fullmatch(rf"[0-9a-fA-F]{{{wanted}}}", self.checksum):
            raise InvalidImage(
                f"checksum is no {self.checksum_type}: {wanted} hexadecimal digits are expected"
            )


@dataclass(frozen=True, slots=True)
class Baking:
    """The node software that a builder guest installs before it becomes the template."""

    software: NodeSoftware = field(hash=False)
    network: BuilderNetwork = DHCP

    def check(self) -> None:
        """Refuse settings that the builder cannot use."""
        self.software.check()
        self.network.check()


@dataclass(frozen=True, slots=True)
class TemplateDesign:
    """A template as it should be on each host that needs a copy."""

    name: str
    mark: Mark
    image: TemplateImage
    storages: tuple[str, ...]  # the first that accepts the content is used; empty: any
    hardware: Mapping[str, str] = field(default_factory=dict, hash=False)
    tags: tuple[str, ...] = ()
    description: str = ""
    pool: str = ""
    hosts: tuple[str, ...] = ()  # empty: all
    vmids: VmidRange = TEMPLATE_VMIDS
    baking: Baking | None = None  # None: the image becomes the template as it is

    def check(self) -> None:
        """Refuse a name or an image that Proxmox does not accept."""
        if not _NAME.fullmatch(self.name):
            raise InvalidTemplate(
                f"{self.name!r} is not a valid guest name: letters, digits, '-' and '.', at most 63"
            )
        self.image.check()
        if self.baking is not None:
            self.baking.check()
            if self.hardware.get("agent", "0").startswith("0"):
                raise InvalidTemplate(
                    "a builder guest needs the guest agent: leave out --no-agent, or set "
                    "agent.enabled"
                )

    @property
    def revision(self) -> str:
        """A hash of what requires a new template."""
        fixed = sorted((key, self.hardware.get(key, "")) for key in _IN_REVISION)
        parts: tuple[object, ...] = (
            self.image.identity, self.storages, fixed, "cloudinit" in self.drives
        )  # fmt: skip
        if self.baking is not None:
            parts = (*parts, user_data(self.baking.software))
        return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:12]

    @property
    def drives(self) -> str:
        return " ".join(v for k, v in self.hardware.items() if k.startswith("ide"))

    @property
    def image_file(self) -> str:
        """The file name of the image on a storage; it contains the key of the owner."""
        stem = self.image.original_name.rpartition(".")[0] or "image"
        stem = re.sub(r"[^A-Za-z0-9._]+", "-", stem).strip("-.")[:60] or "image"
        digest = hashlib.sha256(self.image.identity.encode()).hexdigest()[:8]
        bound = f"-{self.mark.cluster_key}" if self.mark.cluster else ""
        return f"{stem}-{digest}-{self.mark.key}{bound}.{self.image.format}"

    def text(self, vmid: int, *, sealed: bool = False) -> str:
        """The description without the mark; the VMID separates copies from clones made by hand."""
        line = f"moxwell-template={self.revision}/{vmid}"
        line += "\n\nmoxwell-sealed=1" if sealed else ""
        return f"{self.description}\n\n{line}" if self.description else line

    @property
    def revision_tag(self) -> str:
        """The tag by which a copy of this revision is recognised in lists."""
        return f"{REVISION_TAG}{self.revision}"

    @property
    def all_tags(self) -> str:
        own = (TEMPLATE_TAG, self.revision_tag)
        return self.mark.tags([*own, *(tag.lower() for tag in self.tags)])

    def vmid_candidates(self, host: str) -> Iterator[int]:
        """The VMIDs for a copy on a host, in the order in which they are tried."""
        seed = f"{self.mark.key}|{host}|{self.revision}".encode()
        first = int.from_bytes(hashlib.sha256(seed).digest()[:6])
        size = len(self.vmids)
        return (self.vmids.start + (first + n) % size for n in range(size))


def revision_in(description: str, vmid: int) -> str:
    """The revision in the description of a guest; empty if it was not made as this VMID.

    A clone that somebody made by hand has the description of the template, also the owner mark.
    """
    found = _REVISION.search(description)
    return found[1] if found and int(found[2]) == vmid else ""


def is_sealed(description: str) -> bool:
    """Whether the builder of this description has installed everything and was sealed."""
    return _SEALED.search(description) is not None


def checked_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """The tags in lower case without empty ones; refuses those that Proxmox or Moxwell reserve."""
    found = tuple(dict.fromkeys(tag.lower() for tag in tags if tag))
    for tag in found:
        if not _TAG.fullmatch(tag) or is_reserved_tag(tag):
            raise InvalidTemplate(
                f"{tag!r} is not a valid tag: use letters, digits, '_', '+', '.', '-', and no name "
                "that begins with mox"
            )
    return found
