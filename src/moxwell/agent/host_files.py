"""Reads and writes the files of ``/proc``, ``/sys`` and ``/etc/pve`` below a root folder."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class HostFiles:
    """The file system of the host; tests use another root."""

    root: Path = Path("/")

    def path(self, name: str) -> Path:
        return self.root / name.lstrip("/")

    def read(self, name: str) -> str:
        """Return the content without surrounding space; empty if the file cannot be read."""
        try:
            return self.path(name).read_text(errors="replace").strip()
        except OSError:
            return ""

    def number(self, name: str, default: int = -1) -> int:
        text = self.read(name)
        return int(text) if text.lstrip("-").isdecimal() else default

    def names(self, folder: str, prefix: str = "") -> list[str]:
        """Return the names in a folder that are the prefix and a number, by number."""
        try:
            found = [each.name for each in self.path(folder).iterdir()]
        except OSError:
            return []
        if not prefix:
            return sorted(found)
        numbered = [n for n in found if n.startswith(prefix) and n[len(prefix) :].isdecimal()]
        return sorted(numbered, key=lambda name: int(name[len(prefix) :]))

    def write(self, name: str, text: str) -> None:
        self.path(name).write_text(text)
