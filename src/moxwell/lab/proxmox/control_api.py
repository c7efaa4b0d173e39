"""
The control API of the simulator, beside the PVE API: fault rules, actions, state.

::

    GET    /sim                              regions, their hosts, and actions
    GET    /sim/REGION/faults                active fault rules
    POST   /sim/REGION/faults   {kind, ...}  add a rule -> {"id": 1}
    DELETE /sim/REGION/faults[/ID]           delete one rule, or all
    POST   /sim/REGION/do/ACTION {...}       run an action
    GET    /sim/REGION/guests                current state, without the delay of pvestatd
    POST   /sim/save                         write the state file
"""

from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Any

from moxwell.errors import Invalid, Missing
from moxwell.lab.proxmox import chaos
from moxwell.lab.proxmox.engine import Engine
from moxwell.lab.proxmox.fault_injection import Fault

Body = dict[str, Any]


class ControlApi:
    """Handles control requests, independent of HTTP."""

    def __init__(self, engine: Engine, save: Callable[[], None] | None = None) -> None:
        self._engine, self._save = engine, save

    def handle(self, method: str, path: tuple[str, ...], body: Body) -> Any:
        """Handle one request; raises Invalid or Missing."""
        if not path:
            runtimes = self._engine.runtimes
            hosts = {name: sorted(runtime.region.hosts) for name, runtime in runtimes.items()}
            return {"regions": list(runtimes), "hosts": hosts, "actions": sorted(chaos.ACTIONS)}
        if path == ("save",) and method == "POST":
            if self._save is None:
                raise Invalid("no state file was given")
            self._save()
            return {}
        region, *rest = path
        if region not in self._engine.runtimes:
            raise Missing(f"region {region!r} does not exist")
        if rest[:1] == ["faults"]:
            return self._faults(region, method, rest[1:], body)
        if rest[:1] == ["do"] and len(rest) == 2 and method == "POST":
            chaos.perform(self._engine.runtimes[region], rest[1], body)
            return {}
        if rest == ["guests"] and method == "GET":
            return self._guests(region)
        raise Missing(f"unknown request {method} /sim/{'/'.join(path)}")

    def _faults(self, region: str, method: str, rest: list[str], body: Body) -> Any:
        faults = self._engine.faults[region]
        if method == "GET":
            return [asdict(fault) for fault in faults.listed()]
        if method == "POST":
            return {"id": faults.add(make_fault(body))}
        if method == "DELETE":
            faults.remove(int(rest[0]) if rest else None)
            return {}
        raise Missing(f"faults do not support {method}")

    def _guests(self, region: str) -> list[Body]:
        return [
            {
                "vmid": guest.vmid,
                "kind": guest.kind,
                "node": guest.node,
                "running": guest.running,
                "booted": guest.booted,
                "config": guest.conf,
            }
            for guest in self._engine.runtimes[region].region.guests.values()
        ]


def make_fault(body: Body) -> Fault:
    known = {f.name for f in fields(Fault)} - {"id", "hits"}
    for name in body:
        if name not in known:
            raise Invalid(f"unknown fault field {name!r}; known are {', '.join(sorted(known))}")
    if "kind" not in body:
        raise Invalid("field 'kind' is missing")
    return Fault(**body)
