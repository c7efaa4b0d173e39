"""What a running instance is asked for and does not do."""

import msgspec
import pytest

from moxwell.app.launch_options import Wish, unheard
from moxwell.app.state_dir import Facts


def facts(**known: str) -> Facts:
    blank = dict.fromkeys(("name", "mode", "version", "api", "dashboard", "metrics", "started"), "")
    return msgspec.convert({"pid": 1, **blank, **known}, Facts)


LATER = "for the next start: `moxwell down`, then this command again"
TABLE: dict[str, tuple[dict[str, str], dict[str, str], str]] = {
    "nothing is asked": ({}, {"genuine": "installed", "config": "/a"}, ""),
    "it does so already": ({"genuine": "installed"}, {"genuine": "installed"}, ""),
    "no genuine programs, and it has none": ({"genuine": "no"}, {}, ""),
    "genuine programs, but it started without": (
        {"genuine": "installed"},
        {},
        f"--genuine-planes waits {LATER}",
    ),
    "no more genuine programs": (
        {"genuine": "no"},
        {"genuine": "installed"},
        f"--genuine-planes waits {LATER}",
    ),
    "another Proxmox, of a lab": ({"config": "/a"}, {}, f"--config waits {LATER}"),
    "the same Proxmox": ({"config": "/a"}, {"config": "/a"}, ""),
    "two at once": (
        {"world": "/w", "genuine": "/bin"},
        {},
        f"--world and --genuine-planes wait {LATER}",
    ),
}


@pytest.mark.parametrize(("asked", "known", "said"), TABLE.values(), ids=TABLE)
def test_what_waits_for_the_next_start_is_said(
    asked: dict[str, str], known: dict[str, str], said: str
) -> None:
    assert unheard(Wish(name="one", **asked), facts(**known)) == said
