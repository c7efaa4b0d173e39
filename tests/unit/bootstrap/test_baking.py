"""The bootstrap ISO of a builder guest."""

import subprocess

import pytest
import yaml

from moxwell.bootstrap.baking import (
    BAKE,
    DHCP,
    FOLDER,
    PER_BOOT,
    RESULT,
    START,
    BuilderNetwork,
    InvalidBuilderAddress,
    builder_files,
    failure_in,
)
from moxwell.bootstrap.node_software import NodeSoftware
from moxwell.lab.guests.config_drive import ConfigDrive
from moxwell.lab.guests.userdata import read_user_data, result_of_scripts

SOFTWARE = NodeSoftware(kubernetes="v1.34.1")
MAC = "BC:24:11:00:00:01"


@pytest.mark.parametrize("script", [BAKE, START], ids=["bake", "start"])
def test_a_shell_reads_the_scripts(script: str) -> None:
    done = subprocess.run(["sh", "-n"], input=script, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_files_are_the_same_for_each_run() -> None:
    first, second = (builder_files(SOFTWARE, DHCP, MAC) for _ in range(2))
    assert first == second
    other = builder_files(NodeSoftware(kubernetes="v1.34.2"), DHCP, MAC)
    assert other["meta-data"] != first["meta-data"]


def test_a_simulated_guest_reports_success() -> None:
    files = builder_files(SOFTWARE, DHCP, MAC)
    drive = ConfigDrive(user_data=files["user-data"].decode(), meta_data={}, network={})
    parsed = read_user_data(drive)
    assert {PER_BOOT, f"{FOLDER}/bake", f"{FOLDER}/install"} <= set(parsed.files)
    assert result_of_scripts(parsed) == {RESULT: "sealed\n"}


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        (DHCP, {"dhcp4": True}),
        (
            BuilderNetwork("192.0.2.10/24", "192.0.2.1"),
            {"addresses": ["192.0.2.10/24"], "dhcp4": False},
        ),
        (BuilderNetwork("2001:db8::5/64"), {"addresses": ["2001:db8::5/64"], "dhcp6": False}),
    ],
    ids=["DHCP", "IPv4", "IPv6"],
)
def test_the_address_of_a_builder(network: BuilderNetwork, expected: dict[str, object]) -> None:
    network.check()
    config = yaml.safe_load(builder_files(SOFTWARE, network, MAC)["network-config"])
    device = config["ethernets"]["eth0"]
    assert {key: device[key] for key in expected} == expected


@pytest.mark.parametrize(
    "network",
    [
        BuilderNetwork("192.0.2.10"),
        BuilderNetwork("host/24"),
        BuilderNetwork("192.0.2.10/24", "gateway"),
        BuilderNetwork(nameservers=("dns.example",)),
    ],
    ids=["no prefix", "a name", "a gateway by name", "a server by name"],
)
def test_a_wrong_address_is_refused(network: BuilderNetwork) -> None:
    with pytest.raises(InvalidBuilderAddress):
        network.check()


@pytest.mark.parametrize(
    ("text", "failure"),
    [("", None), ("sealed\n", None), ("failed:\nE: no mirror\n", "E: no mirror")],
    ids=["runs", "sealed", "failed"],
)
def test_the_report_of_a_builder(text: str, failure: str | None) -> None:
    assert failure_in(text) == failure
