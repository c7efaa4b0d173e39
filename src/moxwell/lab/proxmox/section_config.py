"""Checks of PVE::SectionConfig: which options a section type has, and which it requires."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from moxwell.lab.proxmox.config_schema.formats import words
from moxwell.lab.proxmox.errors import die


@dataclass(frozen=True, slots=True)
class SectionType:
    """The options of one section type."""

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()  # cannot be changed

    @classmethod
    def of(cls, required: str, optional: str = "", fixed: str = "") -> "SectionType":
        return cls(words(required), words(optional), words(fixed))

    def check(self, config: Mapping[str, Any], *, create: bool) -> None:
        """Raise PVE's error for an option that the type does not have, or lacks."""
        for name in config:
            if name not in self.required and name not in self.optional:
                raise die(f"unexpected property '{name}'")
        for name in self.required if create else ():
            if name not in config:
                raise die(f"missing value for required option '{name}'")

    def delete(self, config: dict[str, Any], new: Mapping[str, Any], names: Iterable[str]) -> None:
        """Delete options from a section."""
        for name in names:
            if name not in self.required and name not in self.optional:
                raise die(f"no such option '{name}'")
            if name in self.required:
                raise die(f"unable to delete required option '{name}'")
            if name in self.fixed:
                raise die(f"unable to delete fixed option '{name}'")
            if name in new:
                raise die(f"cannot set and delete property '{name}' at the same time!")
            config.pop(name, None)
