"""Launch options: stored, inherited, and which of them a running instance does not have."""

from pathlib import Path

import msgspec
import pytest

from moxwell.app import launch_options
from moxwell.app.launch_options import LaunchOptions, restart_message
from moxwell.app.state_dir import InstanceInfo, StateDir
from moxwell.errors import Invalid


def info(**known: str) -> InstanceInfo:
    blank = dict.fromkeys(("name", "mode", "version", "api", "dashboard", "metrics", "started"), "")
    return msgspec.convert({"pid": 1, **blank, **known}, InstanceInfo)


BINARIES = "control_plane_binaries"
LATER = "effect at the next start: `moxwell down`, then this command again"
TABLE: dict[str, tuple[dict[str, str], dict[str, str], str]] = {
    "no option": ({}, {BINARIES: "installed", "config": "/a"}, ""),
    "it has the option already": ({BINARIES: "installed"}, {BINARIES: "installed"}, ""),
    "no binaries, and it has none": ({BINARIES: "no"}, {}, ""),
    "binaries, but it started without": (
        {BINARIES: "installed"},
        {},
        f"--control-plane-binaries takes {LATER}",
    ),
    "no binaries any more": (
        {BINARIES: "no"},
        {BINARIES: "installed"},
        f"--control-plane-binaries takes {LATER}",
    ),
    "another Proxmox, of a lab": ({"config": "/a"}, {}, f"--config takes {LATER}"),
    "the same Proxmox": ({"config": "/a"}, {"config": "/a"}, ""),
    "two options": (
        {"world": "/w", BINARIES: "/bin"},
        {},
        f"--world and --control-plane-binaries take {LATER}",
    ),
}


@pytest.mark.parametrize(("options", "known", "message"), TABLE.values(), ids=TABLE)
def test_options_that_take_effect_at_the_next_start(
    options: dict[str, str], known: dict[str, str], message: str
) -> None:
    assert restart_message(LaunchOptions(name="one", **options), info(**known)) == message


@pytest.mark.parametrize("key", ["genuine", BINARIES])
@pytest.mark.parametrize("file", ["wanted.json", "launch-options.json"])
def test_stored_options_are_read_under_their_old_names(tmp_path: Path, file: str, key: str) -> None:
    state = StateDir("one", {"XDG_STATE_HOME": str(tmp_path)})
    state.create()
    (state.folder / file).write_bytes(msgspec.json.encode({"name": "one", key: "installed"}))
    stored = launch_options.stored(state)
    assert stored == LaunchOptions(name="one", control_plane_binaries="installed")


def test_no_options_are_stored_before_the_first_start(tmp_path: Path) -> None:
    assert launch_options.stored(StateDir("one", {"XDG_STATE_HOME": str(tmp_path)})) is None


@pytest.mark.parametrize(
    ("mode", "features", "message"),
    [
        ("fast", "", "--autoscaler-mode must be exact or optimise"),
        ("exact", "features: {autoscaler: {mode: fast}}", "features.autoscaler.mode must be one"),
        ("exact", "features: {autoscaler: {mode: exact}}", ""),
    ],
)
def test_wrong_settings_of_the_autoscaler_are_refused(
    tmp_path: Path, mode: str, features: str, message: str
) -> None:
    file = tmp_path / "regions.yaml"
    region = '{url: "https://h:8006", region: r, token_id: "u@pve!t", token_secret: s}'
    file.write_text(f"clusters: [{region}]\n{features}\n")
    given = LaunchOptions(name="x", config=str(file), autoscaler_mode=mode)
    if not message:
        launch_options.check(given)
        return
    with pytest.raises(Invalid) as caught:
        launch_options.check(given)
    assert message in str(caught.value)
