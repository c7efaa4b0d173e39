"""The documented role: its privileges suffice for the life of a machine, and each one is needed."""

import asyncio
import contextlib
import re
from typing import Any

import pytest

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.lab.proxmox.state import SimAccess, SimAcl
from moxwell.pve import preflight
from moxwell.pve.preflight import Feature, Need
from moxwell.testing.loop import run_virtual
from moxwell.testing.machine_objects import apply_cluster, apply_machine
from moxwell.testing.two_regions import WORLD, Program, TwoRegions, is_true, ready, reason, running

DENIED_SECONDS = 150.0  # a minute, and the time to make a machine
HIDDEN_SECONDS = 400.0  # without the privilege a template or bridge seems not to exist
MACHINES: tuple[Feature, ...] = ("machines",)
REGIONS = {8: "north", 9: "south"}
GRANTED = "      acl: [{path: /, user: moxwell@pve, role: Administrator}]"
BOOT = {"disk": "scsi0", "sizeGb": 20}
SPEC: dict[str, Any] = {
    "templateID": 9000,
    "numCores": 4,
    "memoryMiB": 4096,
    "cpuType": "host",
    "tags": ["a"],
    "description": "a worker",
    "onBoot": True,
    "disks": {"bootVolume": BOOT, "extra": [{"disk": "scsi1", "sizeGb": 2}]},
    "network": {"networkDevices": [{"name": "net0", "bridge": "vmbr0", "vlan": 7}]},
}
REFUSED = ("PermissionDenied", "InsufficientResources", "TemplateNotFound", "ProxmoxError")


def world_of(major: int, needs: tuple[Need, ...]) -> str:
    """One region in which our token has these privileges on these paths and no others."""
    south = WORLD.index("  - name: south")
    world = WORLD[:south] if major == 8 else f"regions:\n{WORLD[south:]}"
    paths = sorted({n.path for n in needs})
    roles, acl = [], []
    for number, path in enumerate(paths):
        held = ", ".join(sorted({n.privilege for n in needs if n.path == path}))
        roles.append(f"{{role: R{number}, privs: [{held}]}}")
        acl.append(f"{{path: {path}, user: moxwell@pve, role: R{number}}}")
    volume = "ceph:vm-9000-cloudinit" if major == 8 else "nfs:9000/vm-9000-cloudinit.qcow2"
    drive = f"ide2: '{volume},media=cdrom'"  # as `moxwell template build` makes it
    world = re.sub(r"(config: \{)", rf"\1{drive}, ", world, count=1)
    return world.replace(
        GRANTED, f"      roles: [{', '.join(roles)}]\n      acl: [{', '.join(acl)}]"
    )


async def live(estate: TwoRegions, region: str) -> None:
    """Create, change, delete."""
    await apply_cluster(estate, region=region)
    await apply_machine(estate, "m", **SPEC)
    made = await estate.until("m", lambda m: ready(m) or reason(m) in REFUSED)
    assert ready(made), reason(made)
    bigger = {"bootVolume": {**BOOT, "sizeGb": 40}, "extra": SPEC["disks"]["extra"]}
    change = {"changes": "InPlace", "memoryMiB": 8192, "disks": bigger, "tags": ["x"]}
    await estate.kube.merge(ProxmoxMachine, "m", {"spec": change}, "default")
    await asyncio.sleep(120)
    (guest,) = estate.guests(region).values()
    assert "size=40G" in guest.conf["scsi0"]
    assert "x" in guest.conf["tags"].split(";")
    await estate.delete("m")
    await estate.until_gone("m")
    assert estate.guests(region) == {}
    assert estate.isos(region) == []


async def _checked(program: Program, region: str) -> preflight.PreflightReport:
    return await preflight.check(program.regions[region].reader, MACHINES)


@pytest.mark.parametrize("major", REGIONS)
def test_exactly_the_documented_privileges_suffice(major: int) -> None:
    needs = preflight.needs(major, MACHINES)
    region = REGIONS[major]

    async def main() -> None:
        async with running(region, world=world_of(major, needs)) as (estate, program):
            report = await _checked(program, region)
            assert report.ok, str(report)
            await live(estate, region)

    run_virtual(main())


LACKS = [
    pytest.param(major, need, id=f"{need.privilege} on {need.path} of {major}")
    for major in REGIONS
    for need in preflight.needs(major, MACHINES)
]


@pytest.mark.parametrize("major, lack", LACKS)
def test_every_documented_privilege_is_needed_and_the_preflight_names_it(
    major: int, lack: Need
) -> None:
    region = REGIONS[major]
    rest = tuple(n for n in preflight.needs(major, MACHINES) if n != lack)

    async def main() -> None:
        async with running(region, world=world_of(major, rest)) as (estate, program):
            report = await _checked(program, region)
            assert [(n.path, n.privilege) for n in report.missing] == [(lack.path, lack.privilege)]
            with pytest.raises(AssertionError):
                await live(estate, region)

    run_virtual(main())


def grant(access: SimAccess, need: Need) -> None:
    """Add a privilege to the role of its path, as an administrator does."""
    role = next((row.roleid for row in access.acl if row.path == need.path), "")
    if not role:
        role = "Added"
        access.acl.append(SimAcl(need.path, "user", "moxwell@pve", role))
    access.roles.setdefault(role, []).append(need.privilege)


@pytest.mark.parametrize("major, lack", LACKS)
def test_a_machine_continues_soon_after_its_role_is_corrected(major: int, lack: Need) -> None:
    """Nothing tells that a role has changed; the machine tries again after a minute."""
    region = REGIONS[major]
    rest = tuple(n for n in preflight.needs(major, MACHINES) if n != lack)

    async def main() -> None:
        async with running(region, world=world_of(major, rest)) as (estate, _):
            await apply_cluster(estate, region=region)
            await apply_machine(estate, "m", **SPEC)
            with contextlib.suppress(AssertionError):
                await estate.until("m", ready)
            denied = reason(await estate.machine("m")) == "PermissionDenied"
            grant(estate.region(region).access, lack)
            granted = asyncio.get_running_loop().time()
            await estate.until("m", ready)
            limit = DENIED_SECONDS if denied else HIDDEN_SECONDS
            assert asyncio.get_running_loop().time() - granted < limit

    run_virtual(main())


@pytest.mark.parametrize(
    "features, works",
    [
        pytest.param(("machines", "machine-moves"), True, id="with the right to migrate"),
        pytest.param(("machines",), False, id="without it"),
    ],
)
def test_a_local_template_of_another_host_needs_migration(
    features: tuple[Feature, ...], works: bool
) -> None:
    world = world_of(8, preflight.needs(8, features)).replace("ceph:base-9000", "lvm:base-9000")

    async def main() -> None:
        async with running("north", world=world) as (estate, _):
            await apply_cluster(estate, region="north", allowedNodes=["pve2"])
            await apply_machine(estate, "m", templateID=9000)
            made = await estate.until("m", lambda m: ready(m) or reason(m) in REFUSED)
            assert ready(made) is works, reason(made)

    run_virtual(main())


@pytest.mark.parametrize(
    "features, seen",
    [
        pytest.param(("machines", "machine-addresses"), True, id="with the right to ask"),
        pytest.param(("machines",), False, id="without it"),
    ],
)
def test_addresses_of_dhcp_need_the_agent(features: tuple[Feature, ...], seen: bool) -> None:
    network = {"networkDevices": [{"name": "net0", "bridge": "vmbr0", "dhcp4": True}]}

    async def main() -> None:
        world = world_of(9, preflight.needs(9, features))
        async with running("south", world=world) as (estate, _):
            await apply_cluster(estate, region="south", ipv4Config=None)
            await apply_machine(estate, "m", templateID=9000, network=network)
            made = await estate.until("m", lambda m: is_true(m, "Ready") or reason(m) in REFUSED)
            await asyncio.sleep(60)
            made = await estate.machine("m")
            shown = any(a.address == "10.9.9.9" for a in made.status.addresses)
            assert shown is seen, made.status.conditions

    run_virtual(main())
