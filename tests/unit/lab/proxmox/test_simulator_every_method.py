"""Every method of the API schema answers requests that are only roughly right."""

import random
import re
from typing import Any

import pytest

from moxwell.lab.proxmox.route import Param
from moxwell.lab.proxmox.schema.catalog import MethodFacts, catalog
from support.simulator_session import SimulatorSession, run_session

KNOWN = {
    "node": "n1", "vmid": "100", "storage": "local", "zone": "z1", "vnet": "v1",
    "subnet": "z1-10.9.0.0-24", "poolid": "p1", "group": "g1", "name": "a1", "cidr": "10.0.0.0/8",
    "pos": "0", "sid": "vm:100", "userid": "joe@pve", "groupid": "g1", "roleid": "PVEAdmin",
    "realm": "pve", "iface": "vmbr0", "service": "pveproxy", "ipam": "pve", "disk": "scsi0",
    "volume": "shared:iso/cidata.iso", "snapname": "s1", "newid": "300", "target": "n2",
}  # fmt: skip
WORDS = ("x", "aa", "1", "n1", "10.0.0.1", "100", "local:1", "none")


def value(rng: random.Random, name: str, param: Param) -> Any:
    if name in KNOWN and rng.random() < 0.8:
        return KNOWN[name]
    if param.enum:
        return rng.choice(param.enum)
    if param.type in ("integer", "number"):
        return str(int(param.minimum or 1))
    return [rng.choice(WORDS)] if param.type == "array" else rng.choice(WORDS)


def request(rng: random.Random, facts: MethodFacts) -> tuple[str, dict[str, Any]]:
    """The path and the parameters of a request."""
    named = set(re.findall(r"\{(.+?)\}", facts.path))
    path = facts.path
    for name in named:
        text = str(value(rng, name, facts.params.get(name) or Param()))
        path = path.replace(f"{{{name}}}", text.replace("/", "%2F"))
    chosen = {
        name: value(rng, name, param)
        for name, param in facts.params.items()
        if name not in named and "[n]" not in name
        if not param.optional or rng.random() < 0.15
    }
    return path, chosen


async def some_objects(sim: SimulatorSession) -> None:
    await sim.vm(100, scsi0="local:1", net0="virtio,bridge=vmbr0")
    for path, form in {
        "/pools": {"poolid": "p1"},
        "/access/users": {"userid": "joe@pve"},
        "/access/groups": {"groupid": "g1"},
        "/cluster/sdn/zones": {"zone": "z1", "type": "simple", "ipam": "pve"},
        "/cluster/sdn/vnets": {"vnet": "v1", "zone": "z1"},
        "/cluster/firewall/groups": {"group": "g1"},
        "/cluster/firewall/ipset": {"name": "a1"},
        "/cluster/ha/resources": {"sid": "vm:100", "state": "stopped"},
    }.items():
        assert (await sim.post(path, **form)).status == 200


@pytest.mark.parametrize("version", ["8.4.21", "9.2.11"])
@pytest.mark.parametrize("seed", range(8))
def test_every_method_answers(version: str, seed: int) -> None:
    async def session(sim: SimulatorSession) -> None:
        await some_objects(sim)
        rng, known = random.Random(seed), catalog(int(version[0]))
        methods = sorted(known.all())
        rng.shuffle(methods)
        for method, path in methods:
            facts = known.find(method, path)
            assert facts is not None
            target, form = request(rng, facts)
            status = (await sim.request(method, target, form)).status
            assert status in (200, 400, 401, 403, 424, 500, 595), (method, target, form, status)

    run_session(session, version)
