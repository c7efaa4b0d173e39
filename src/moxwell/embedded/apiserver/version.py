"""The response of ``/version``."""

from typing import Any


def version_info(version: str) -> dict[str, Any]:
    """Return the response of ``/version``."""
    major, minor, _ = version.removeprefix("v").split(".", 2)
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"{version}+moxwell",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "gc",
        "platform": "",
    }
