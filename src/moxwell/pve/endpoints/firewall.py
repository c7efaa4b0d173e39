"""
Endpoints of the firewall: security groups of the cluster; options, rules and IP sets of guests.

A new rule is inserted at position 0 and disabled by default. A rule of a guest may name a security
group that does not exist, and the options of a guest that does not exist can be read.
"""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, field

from moxwell.pve.caller import ReadEndpoints, WriteEndpoints
from moxwell.pve.values import Params, Value, path

Kind = Literal["qemu", "lxc"]


class FirewallRule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A firewall rule; ``type`` is ``in``, ``out``, ``forward`` or ``group``."""

    type: str
    action: str
    pos: int | None = None
    enable: int = 0
    macro: str = ""
    proto: str = ""
    source: str = ""
    dest: str = ""
    sport: str = ""
    dport: str = ""
    iface: str = ""
    log: str = ""
    comment: str = ""
    icmp_type: str = field(name="icmp-type", default="")
    digest: str = ""  # of the whole list

    def params(self) -> dict[str, Value]:
        """Return the rule as parameters of a request."""
        form: dict[str, Value] = {
            "type": self.type, "action": self.action, "enable": self.enable, "pos": self.pos,
            "macro": self.macro, "proto": self.proto, "source": self.source, "dest": self.dest,
            "sport": self.sport, "dport": self.dport, "iface": self.iface, "log": self.log,
            "comment": self.comment, "icmp-type": self.icmp_type,
        }  # fmt: skip
        return {key: value for key, value in form.items() if value not in ("", None)}


class SecurityGroup(Struct, frozen=True, kw_only=True):
    group: str
    comment: str = ""
    digest: str = ""


class FirewallReader(ReadEndpoints):
    """GET requests below ``/cluster/firewall`` and ``/nodes/{node}/qemu|lxc/{vmid}/firewall``."""

    async def groups(self) -> tuple[SecurityGroup, ...]:
        return await self._caller.read(tuple[SecurityGroup, ...], "/cluster/firewall/groups")

    async def group_rules(self, group: str) -> tuple[FirewallRule, ...]:
        where = path("cluster", "firewall", "groups", group)
        return await self._caller.read(tuple[FirewallRule, ...], where)

    async def options(self, host: str, vmid: int, *, kind: Kind = "qemu") -> dict[str, Any]:
        return await self._caller.read(dict[str, Any], _guest_path(host, kind, vmid, "options"))

    async def rules(self, host: str, vmid: int, *, kind: Kind = "qemu") -> tuple[FirewallRule, ...]:
        return await self._caller.read(
            tuple[FirewallRule, ...], _guest_path(host, kind, vmid, "rules")
        )


class FirewallWriter(WriteEndpoints, FirewallReader):
    """POST, PUT and DELETE requests below the same paths."""

    async def create_group(self, group: str, *, comment: str | None = None) -> None:
        params: Params = {"group": group, "comment": comment}
        await self._caller.write("POST", "/cluster/firewall/groups", params)

    async def delete_group(self, group: str) -> None:
        await self._caller.write("DELETE", path("cluster", "firewall", "groups", group))

    async def add_group_rule(self, group: str, rule: FirewallRule) -> None:
        where = path("cluster", "firewall", "groups", group)
        await self._caller.write("POST", where, rule.params())

    async def delete_group_rule(self, group: str, pos: int, *, digest: str | None = None) -> None:
        where = path("cluster", "firewall", "groups", group, pos)
        await self._caller.write("DELETE", where, {"digest": digest})

    async def set_options(
        self, host: str, vmid: int, options: Mapping[str, Value], *, kind: Kind = "qemu"
    ) -> None:
        await self._caller.write("PUT", _guest_path(host, kind, vmid, "options"), options)

    async def add_rule(
        self, host: str, vmid: int, rule: FirewallRule, *, kind: Kind = "qemu"
    ) -> None:
        await self._caller.write("POST", _guest_path(host, kind, vmid, "rules"), rule.params())

    async def delete_rule(
        self, host: str, vmid: int, pos: int, *, digest: str | None = None, kind: Kind = "qemu"
    ) -> None:
        await self._caller.write(
            "DELETE", _guest_path(host, kind, vmid, "rules", str(pos)), {"digest": digest}
        )


def _guest_path(host: str, kind: Kind, vmid: int, *more: str) -> str:
    return path("nodes", host, kind, vmid, "firewall", *more)
