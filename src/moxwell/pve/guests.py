"""
Configuration of a guest as a value: all keys as text, typed properties for the common ones.

GET config shows the configuration after the next stop (pending changes are merged in); with
``current=1`` it shows the one in effect.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from moxwell.pve import errors, property_strings
from moxwell.pve.values import size_bytes

_NIC = re.compile(r"net\d+")
_UNUSED = re.compile(r"unused\d+")
_MAC = re.compile(r"(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}")
MAX_DIGITS = 18
CLONING = "clone"
TEMPORARY = "qmclone temporary file"  # the whole description of a clone until it is complete


@dataclass(frozen=True)
class GuestConfig:
    """All keys of a guest's configuration, as texts."""

    raw: Mapping[str, str]

    @classmethod
    def of(cls, data: Mapping[str, object]) -> "GuestConfig":
        try:
            return cls({key: _text(value) for key, value in data.items() if value is not None})
        except RecursionError:
            raise errors.InvalidAnswer(
                "a value of the configuration is nested too deeply"
            ) from None

    def __getitem__(self, key: str) -> str:
        return self.raw[key]

    def get(self, key: str, default: str = "") -> str:
        return self.raw.get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self.raw

    def __iter__(self) -> Iterator[str]:
        return iter(self.raw)

    @property
    def digest(self) -> str:
        return self.get("digest")

    @property
    def name(self) -> str:
        return self.get("name") or self.get("hostname")

    @property
    def description(self) -> str:
        return self.get("description")

    @property
    def tags(self) -> tuple[str, ...]:
        return property_strings.tags(self.get("tags"))

    @property
    def lock(self) -> str:
        """Return the lock (``clone``, ``backup``, ``migrate``, …) or an empty text."""
        return self.get("lock")

    @property
    def is_stale_clone(self) -> bool:
        """
        Report whether it is an incomplete clone of a lost host: no name, no disks, no network.

        A running clone looks the same, so the caller must know that none runs.
        """
        bare = self.description.strip() == TEMPORARY and not self.name
        return bare and self.lock in {"", CLONING} and not self.disks and not self.nics

    @property
    def template(self) -> bool:
        return self.get("template") == "1"

    @property
    def protected(self) -> bool:
        return self.get("protection") == "1"

    @property
    def cores(self) -> int:
        return self._number("cores", self.get("cores", "1"))

    @property
    def sockets(self) -> int:
        return self._number("sockets", self.get("sockets", "1"))

    @property
    def memory_mib(self) -> int:
        parts = property_strings.parse(self.get("memory", "512"))
        return self._number("memory", parts.get("current") or parts.get("") or "512")

    @staticmethod
    def _number(key: str, text: str) -> int:
        if len(text) > MAX_DIGITS or not text.isascii() or not text.isdigit():
            raise errors.InvalidAnswer(f"{key} of the guest is not a number")
        return int(text)

    @property
    def agent(self) -> bool:
        parts = property_strings.parse(self.get("agent", "0"))
        return (parts.get("enabled") or parts.get("")) == "1"

    @cached_property
    def smbios(self) -> Mapping[str, str]:
        return property_strings.parse(self.get("smbios1"))

    @property
    def uuid(self) -> str:
        """The SMBIOS UUID, which the guest reads as its system UUID; lower case."""
        return self.smbios.get("uuid", "").lower()

    @cached_property
    def disks(self) -> Mapping[str, str]:
        """Return the drives by slot, CD-ROMs and cloud-init drives included."""
        keys = property_strings.DISK_KEYS | {"efidisk0", "tpmstate0", "rootfs"}
        return {key: value for key, value in self.raw.items() if key in keys}

    @property
    def unused(self) -> Mapping[str, str]:
        return {key: value for key, value in self.raw.items() if _UNUSED.fullmatch(key)}

    @property
    def nics(self) -> Mapping[str, str]:
        return {key: value for key, value in self.raw.items() if _NIC.fullmatch(key)}

    def mac(self, nic: str) -> str:
        """Return the MAC address of a network device in lower case."""
        match = _MAC.search(self.get(nic))
        return match[0].lower() if match else ""

    def slot_of(self, volid: str) -> str | None:
        """Return the slot that a volume is attached to."""
        found = (
            slot for slot, value in self.disks.items() if property_strings.volume(value) == volid
        )
        return next(found, None)

    def size_bytes(self, slot: str) -> int:
        """Return the size of a drive, 0 if the configuration does not contain it."""
        size = property_strings.parse(self.get(slot)).get("size")
        return size_bytes(size) if size else 0


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return str(value)
