"""A caller without privileges is refused as the schema says, by every route of the simulator."""

import re

import pytest

from moxwell.lab.proxmox.errors import PveException
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute, Check
from moxwell.lab.proxmox.schema.catalog import catalog
from moxwell.lab.proxmox.schema_routes import route_table
from support.simulator_session import SimulatorSession, run_session

VALUES = {"node": "n1", "vmid": 100, "storage": "local", "snapname": "one", "newid": 101}
VALUES |= {"userid": "joe@pve", "tokenid": "tk", "realm": "pve", "id": "100-0"}
OTHERWISE = re.compile(
    r"GET /cluster/options"  # everybody sees some of them
    r"|\w+ /cluster/sdn/vnets/\{vnet\}/firewall/.*"  # the zone of the VNet is read first
    r"|\w+ /access/(ticket|domains)"  # without authentication
    r"|PUT /access/(acl|password)"  # the path and the realm come from missing parameters
)


def refusal(check: Check | None, call: PveCall) -> str:
    if check is None:
        return "root only"
    try:
        check(call)
    except PveException as problem:
        return problem.message
    return ""


def differs(sim: SimulatorSession, route: ApiRoute, check: Check | None) -> bool:
    given = {name: VALUES.get(name, "x") for name in re.findall(r"\{([^}]+)\}", route.path)}
    runtime = sim.engine.runtimes["r1"]

    def call() -> PveCall:
        return PveCall(runtime, "joe@pve", None, "n1", route.method, route.path, dict(given))

    return refusal(route.permission, call()) != refusal(check, call())


@pytest.mark.parametrize("major, version", [(8, "8.4.21"), (9, "9.2.11")])
def test_refusals_are_those_of_the_schema(major: int, version: str) -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.post("/access/users", userid="joe@pve")
        await sim.vm()
        found = set()
        for route in route_table(major).routes:
            facts = catalog(major).find(route.method, route.path)
            if facts is not None and differs(sim, route, facts.check):
                found.add(f"{route.method} {route.path}")
        assert {name for name in found if not OTHERWISE.fullmatch(name)} == set()

    run_session(body, version)
