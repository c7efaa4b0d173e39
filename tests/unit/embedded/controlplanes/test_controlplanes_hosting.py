"""What runs a tenant's control plane, how it is selected and stored, and templates for nodes."""

from pathlib import Path
from typing import Any

import pytest

from moxwell.app.launch_options import LaunchOptions, check, with_defaults
from moxwell.cli.optional_values import add_values
from moxwell.config_file import InvalidConfig
from moxwell.embedded.controlplanes.control_planes import HostedControlPlanes
from moxwell.errors import Missing
from moxwell.lab import templates
from moxwell.lab.proxmox import world
from moxwell.pve import config
from moxwell.runtime.key import Key

LAB = Path(templates.__file__).with_name("lab.yaml")


class NamedRunner:
    """Runs nothing; raises its own name."""

    def __init__(self, name: str, *keys: Key) -> None:
        self.name, self._keys = name, keys

    def has(self, key: Key) -> bool:
        return key in self._keys

    async def sleep(self, key: Key) -> None:
        raise LookupError(self.name)


OLD, NEW = Key("team", "old"), Key("team", "new")


@pytest.mark.parametrize(
    "key, chosen, existing, runner",
    [
        pytest.param(NEW, False, "", "inprocess", id="new, nothing chosen"),
        pytest.param(NEW, True, "", "binaries", id="new, binaries chosen"),
        pytest.param(OLD, True, "inprocess", "inprocess", id="an in-process one stays in process"),
        pytest.param(OLD, False, "binaries", "binaries", id="one on binaries stays there"),
    ],
)
async def test_a_tenant_stays_with_its_first_runner(
    tmp_path: Path, key: Key, chosen: bool, existing: str, runner: str
) -> None:
    if existing == "inprocess":
        (tmp_path / "team" / "old").mkdir(parents=True)
    binaries = NamedRunner("binaries", *([OLD] if existing == "binaries" else []))
    inprocess: Any = NamedRunner("inprocess")
    planes = HostedControlPlanes(tmp_path, inprocess, binaries, "v1.36.3" if chosen else "")
    with pytest.raises(LookupError, match=runner):
        await planes.sleep(key)


def options(**given: str) -> LaunchOptions:
    return LaunchOptions(name="n", **given)


@pytest.mark.parametrize(
    "given, last, wanted",
    [
        pytest.param("", None, "", id="never set"),
        pytest.param("", "installed", "installed", id="as last time"),
        pytest.param("no", "installed", "no", id="disabled"),
        pytest.param("/k8s", "installed", "/k8s", id="another folder"),
    ],
)
def test_the_choice_is_remembered(given: str, last: str | None, wanted: str) -> None:
    before = None if last is None else options(control_plane_binaries=last)
    found = with_defaults(options(control_plane_binaries=given), before)
    assert found.control_plane_binaries == wanted


CLUSTERS = "clusters: [{region: a, url: 'https://x:8006', token_id: 'a@b!c', token_secret: s}]\n"


@pytest.mark.parametrize("key", ["control_plane_binaries", "genuine_planes"])
@pytest.mark.parametrize(
    "value, wanted",
    [
        pytest.param("", "", id="not set"),
        pytest.param("true", "installed", id="true"),
        pytest.param("false", "no", id="false"),
        pytest.param("k8s", "k8s", id="a folder beside the file"),
    ],
)
def test_the_configuration_file_may_set_it(
    tmp_path: Path, key: str, value: str, wanted: str
) -> None:
    (tmp_path / "k8s").mkdir()
    file = tmp_path / "proxmox.yaml"
    file.write_text(CLUSTERS + (f"{key}: {value}\n" if value else ""))
    assert config.load(file)
    expected = str(tmp_path / "k8s") if wanted == "k8s" else wanted
    assert config.control_plane_binaries(file) == expected
    configured = with_defaults(options(config=str(file)), None)
    assert configured.control_plane_binaries == expected
    flag = with_defaults(options(config=str(file), control_plane_binaries="no"), None)
    assert flag.control_plane_binaries == "no"  # the flag wins


@pytest.mark.parametrize("value", ["3", "[a]", "nowhere"])
def test_a_wrong_value_in_the_configuration(tmp_path: Path, value: str) -> None:
    file = tmp_path / "proxmox.yaml"
    file.write_text(f"{CLUSTERS}control_plane_binaries: {value}\n")
    with pytest.raises(InvalidConfig, match="true, false or a folder"):
        check(options(config=str(file)))


def test_a_missing_folder_is_refused_before_the_start() -> None:
    with pytest.raises(Missing, match=r"folder /nowhere .* does not exist"):
        check(options(control_plane_binaries="/nowhere"))


def test_the_option_may_come_without_a_value() -> None:
    flag = "--control-plane-binaries"
    given = [flag, "--wait", "3", f"{flag}=/k"]
    assert add_values(given) == [f"{flag}=installed", "--wait", "3", f"{flag}=/k"]


def test_the_lab_gets_a_template_of_the_installed_version() -> None:
    regions = world.load_world(LAB, 0.0)
    for region in regions.values():
        names = set(region.guests)
        templates.add_template(region, "v1.36.3")
        (made,) = set(region.guests) - names
        guest = region.guests[made]
        assert templates.version_of(guest) == "v1.36.3"
        assert "v1.36.3" in str(guest.conf["name"])
        storage, _, name = str(guest.conf["scsi0"]).split(",")[0].partition(":")
        assert str(made) in name
        assert name in region.storages[storage].volumes_on(guest.node)
        assert made in region.statd_status  # in the lists at once
        templates.add_template(region, "v1.36.3")
        assert len(region.guests) == len(names) + 1
        templates.add_template(region, "v1.34.1")  # the world has it
        assert len(region.guests) == len(names) + 1
