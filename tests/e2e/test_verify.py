"""``verify`` and ``plan`` as a person types them: by the daemon, and past it (operator mode)."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moxwell.app.region_access import TOKEN, TOKEN_SECRET
from moxwell.clock import SystemClock
from moxwell.embedded.ports import free_port
from moxwell.pve.config import load
from moxwell.pve.effects import Owned
from moxwell.pve.regions import Regions
from support.lab_inspector import eventually
from support.lab_instance import Instance, instance

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("verify")]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with instance(tmp_path_factory.mktemp("verify"), "verify") as running:
        yield running


def write_config(lab: Instance, file: Path, **urls: list[str]) -> Path:
    """The regions as somebody outside of the daemon would write them down."""
    rows = [
        {
            "region": region,
            "urls": urls.get(region, found),
            "token_id": TOKEN,
            "token_secret": TOKEN_SECRET,
            "ca_file": str(lab.state.folder / "simulator" / "ca.pem"),
        }
        for region, found in lab.facts()["regions"].items()
    ]
    file.write_text(json.dumps({"clusters": rows}))
    return file


def past_the_daemon(lab: Instance, config: Path) -> list[str]:
    return ["--kubeconfig", str(lab.state.kubeconfig), "--config", str(config)]


def found(lab: Instance, *more: str) -> tuple[int, set[str]]:
    done = lab.run("verify", "-q", "-o", "json", *more, check=False)
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["exitCode"] == done.returncode
    return done.returncode, {f["check"] for f in report["findings"] if f["level"] != "remark"}


async def _power(config: Path, region: str, vmid: int, what: str, after: str) -> None:
    """Start or stop a guest by hand, and wait until it is so."""
    clock = SystemClock()
    regions = Regions(load(config), clock)
    try:
        await regions[region].inventory.refresh()
        host = regions[region].inventory.guests[vmid].host
        qemu = regions[region].writer(Owned("test", vmids=(vmid,))).qemu
        await getattr(qemu, what)(host, vmid)
        while (await qemu.status(host, vmid)).status != after:
            await clock.sleep(0.2)
    finally:
        await regions.close()


def test_both_ways_agree_and_name_what_somebody_did_by_hand(lab: Instance, tmp_path: Path) -> None:
    config = write_config(lab, tmp_path / "proxmox.yaml")
    both = ((), tuple(past_the_daemon(lab, config)))

    def is_well() -> bool:
        return [found(lab, *way) for way in both] == [(0, set()), (0, set())]

    eventually(is_well, "nothing is wrong")
    items = json.loads(lab.run("get", "proxmoxmachines", "-A", "-o", "json").stdout)["items"]
    region, vmid = items[0]["spec"]["region"], items[0]["spec"]["virtualMachineID"]
    asyncio.run(_power(config, region, vmid, "stop", "stopped"))
    codes = [found(lab, *way) for way in both]
    assert [code for code, _ in codes] == [1, 1]
    assert all("GuestStopped" in names for _, names in codes)
    said = lab.run("verify", "-q", check=False).stdout
    assert f"qm start {vmid}" in said
    assert "nothing was changed" in said
    asyncio.run(_power(config, region, vmid, "start", "running"))
    eventually(is_well, "nothing is wrong any more")


def test_a_region_that_does_not_answer_is_no_promise(lab: Instance, tmp_path: Path) -> None:
    closed = [f"https://127.0.0.1:{free_port()}"]
    config = write_config(lab, tmp_path / "half.yaml", frankfurt=closed)
    code, names = found(lab, *past_the_daemon(lab, config))
    assert code in (1, 75)
    assert "RegionUnreachable" in names


def test_a_plan_needs_no_daemon_and_changes_nothing(lab: Instance, tmp_path: Path) -> None:
    config = write_config(lab, tmp_path / "proxmox.yaml")
    group = json.loads(
        lab.run("get", "machinedeployment/demo-md0", "-n", "tenant-demo", "-o", "json").stdout
    )
    group["spec"]["replicas"] += 2
    meta = {"name": "demo-md0", "namespace": "tenant-demo"}
    head = {k: group[k] for k in ("apiVersion", "kind", "spec")}
    file = tmp_path / "group.json"
    file.write_text(json.dumps({**head, "metadata": meta}))
    before = lab.run("get", "machines", "-A", "-o", "name").stdout
    alone = lab.run("plan", "-f", str(file), "-o", "json", *past_the_daemon(lab, config)).stdout
    asked = lab.run("plan", "-f", str(file), "-o", "json").stdout
    assert json.loads(alone) == json.loads(asked)
    assert json.loads(alone)["parts"][0]["groups"][0]["created"] == 2
    for more in (
        ["cluster", "scale", "demo", "md0", "9"],
        ["cluster", "upgrade", "demo", "v1.35.0"],
    ):
        assert "+ create" in lab.run(*more, "--plan").stdout
    assert "- delete" in lab.run("cluster", "delete", "demo", "--plan").stdout
    assert "- delete" in lab.run("delete", "kubernetes/demo", "-n", "tenant-demo", "--plan").stdout
    assert "will be updated" in lab.run("apply", "-f", str(file), "--plan").stdout
    assert lab.run("get", "machines", "-A", "-o", "name").stdout == before


def test_half_an_address_is_wrong_usage(lab: Instance) -> None:
    done = lab.run("verify", "--kubeconfig", str(lab.state.kubeconfig), check=False)
    assert done.returncode == 2
    assert "--config" in done.stderr
