"""
Makes the network of a node as planned: a file, routes and rules. Repeating it is harmless.

Routes have a protocol number of their own, rules a chain of their own, so nothing else is removed.
A configuration of another CNI is left alone, and then this one does nothing.
"""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

from moxwell.atomic_file import write_private
from moxwell.cni.plan import PodNetwork, PodRoute, cni_configuration, masquerade_rules
from moxwell.errors import Conflict, Retryable

FILE, CHAIN, PROTOCOL = "10-moxwell.conflist", "MOXWELL-MASQ", "98"
NAMES = ("*.conf", "*.conflist", "*.json")


class OtherCni(Conflict):
    """The node has the configuration of another CNI."""

    reason = "OtherCni"


class NetworkCommandFailed(Retryable):
    """A program that changes the network failed."""

    reason = "NetworkCommandFailed"


class NodeSystem:
    """The network of this node; ``folder`` is that of CNI configurations."""

    def __init__(self, folder: Path, cluster: str) -> None:
        self._folder, self._cluster = folder, cluster

    async def make(self, network: PodNetwork) -> None:
        """
        Make it, the configuration last: with it the node becomes ready.

        A route that cannot be made stops nothing else; it is raised at the end.
        """
        self._check_alone()
        failed: dict[PodRoute, str] = {}
        for six in (False, True):
            wanted = {route for route in network.routes if route.six == six}
            if wanted or any(":" in each for each in network.networks) == six:
                failed |= await self._set_routes(wanted, "-6" if six else "-4")
        for program, rule in masquerade_rules(network, self._cluster):
            await self._set_rules(program, rule)
        gateways = {route.gateway for route in network.routes if route not in failed}
        mtu = await self._mtu(next(iter(sorted(gateways)), ""))
        self._write(cni_configuration(network, mtu))
        if failed:
            raise NetworkCommandFailed(
                "; ".join(failed[route] for route in sorted(failed, key=str))
            )

    def _check_alone(self) -> None:
        found = sorted(f.name for name in NAMES for f in self._folder.glob(name))
        if others := [name for name in found if name != FILE]:
            raise OtherCni(
                f"{self._folder} has {others[0]}: the node has another CNI. Set "
                "control_planes.addons.cni to none, or remove that file"
            )

    def _write(self, text: str) -> None:
        file = self._folder / FILE
        if not file.exists() or file.read_text() != text:
            write_private(file, text.encode())

    async def _set_routes(self, wanted: set[PodRoute], family: str) -> dict[PodRoute, str]:
        """The routes that cannot be made, and why."""
        failed: dict[PodRoute, str] = {}
        shown = await run("ip", family, "-j", "route", "show", "proto", PROTOCOL)
        rows = json.loads(shown or "[]")
        present = {PodRoute(row["dst"], row.get("gateway", "")) for row in rows}
        for route in sorted(present - wanted, key=str):
            if route.network not in {each.network for each in wanted}:
                await run("ip", family, "route", "del", route.network, "proto", PROTOCOL)
        for route in sorted(wanted - present, key=str):
            words = (route.network, "via", route.gateway, "proto", PROTOCOL)
            try:
                await run("ip", family, "route", "replace", *words)
            except NetworkCommandFailed as error:
                failed[route] = str(error)
        return failed

    async def _set_rules(self, program: str, rule: Sequence[str]) -> None:
        """A chain with one rule, and a jump to it."""
        tool = (program, "-w", "-t", "nat")
        if f"-N {CHAIN}" not in (rules := (await run(*tool, "-S")).splitlines()):
            await run(*tool, "-N", CHAIN)
        if f"-A POSTROUTING -j {CHAIN}" not in rules:
            await run(*tool, "-A", "POSTROUTING", "-j", CHAIN)
        present = [r for r in rules if r.startswith(f"-A {CHAIN} ")]
        text = " ".join(["-A", CHAIN, *rule])
        if present != [text]:
            await run(*tool, "-F", CHAIN)
            await run(*tool, "-A", CHAIN, *rule)

    async def _mtu(self, gateway: str) -> int:
        """The MTU of the device that leads to other nodes, else of the default route."""
        words = ("route", "get", gateway) if gateway else ("route", "show", "default")
        rows = json.loads(await run("ip", "-j", *words) or "[]")
        if not rows:
            return 1500
        links = json.loads(await run("ip", "-j", "link", "show", "dev", rows[0]["dev"]))
        return int(links[0]["mtu"])


async def run(*command: str) -> str:
    """The output of a program."""
    pipe = asyncio.subprocess.PIPE
    running = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    out, problem = await running.communicate()
    if running.returncode:
        text = problem.decode(errors="replace").strip()[-400:]
        raise NetworkCommandFailed(f"{' '.join(command)}: {text}")
    return out.decode(errors="replace")
