"""
Endpoints of high availability: resources, groups (release 8), rules (release 9).

Groups on 9 and rules on 8 raise ``NotSupported``. Start and stop of a managed guest become requests
to the HA manager; their tasks end before anything has happened.
"""

from collections.abc import Sequence

from msgspec import Struct

from moxwell.pve.caller import ReadEndpoints, WriteEndpoints
from moxwell.pve.values import Params, path


class HaResource(Struct, frozen=True, kw_only=True):
    """A guest that HA manages; ``state`` is the requested one."""

    sid: str
    type: str = ""
    state: str = "started"
    group: str = ""
    comment: str = ""
    max_restart: int | None = None
    max_relocate: int | None = None
    failback: bool | None = None  # since 9
    digest: str = ""


class HaGroup(Struct, frozen=True, kw_only=True):
    """Hosts (with priorities) that resources prefer; release 8 only."""

    group: str
    nodes: str = ""
    restricted: bool = False
    nofailback: bool = False
    comment: str = ""
    digest: str = ""

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(node.partition(":")[0] for node in self.nodes.split(",") if node)


class HaRule(Struct, frozen=True, kw_only=True):
    """A rule: hosts of resources (``node-affinity``) or their grouping (``resource-affinity``)."""

    rule: str
    type: str
    resources: str = ""
    nodes: str = ""
    affinity: str = ""
    strict: bool = False
    disable: bool = False
    comment: str = ""
    digest: str = ""
    order: int = 0

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(node.partition(":")[0] for node in self.nodes.split(",") if node)

    @property
    def sids(self) -> tuple[str, ...]:
        return tuple(sid for sid in self.resources.split(",") if sid)


class HaStatusRow(Struct, frozen=True, kw_only=True):
    """A row of the HA state: quorum, master, host or resource."""

    id: str
    type: str = ""
    node: str = ""
    status: str = ""
    sid: str = ""
    state: str = ""
    request_state: str = ""
    crm_state: str = ""


class HaCrm(Struct, frozen=True, kw_only=True):
    """The HA manager's states of hosts and the requests for them."""

    node_status: dict[str, str] = {}
    node_request: dict[str, dict[str, object]] = {}


class HaLrm(Struct, frozen=True, kw_only=True):
    """State of a host's local resource manager."""

    mode: str = ""


class HaManager(Struct, frozen=True, kw_only=True):
    """Status of the HA manager and of the local resource managers."""

    manager_status: HaCrm = HaCrm()
    lrm_status: dict[str, HaLrm] = {}

    @property
    def in_maintenance(self) -> frozenset[str]:
        """Return the hosts that are in maintenance mode or requested to be."""
        crm = self.manager_status
        requested = {host for host, what in crm.node_request.items() if what.get("maintenance")}
        reported = {host for host, state in crm.node_status.items() if state == "maintenance"}
        return frozenset(
            requested
            | reported
            | {host for host, lrm in self.lrm_status.items() if lrm.mode == "maintenance"}
        )


class HaReader(ReadEndpoints):
    """GET requests below ``/cluster/ha``."""

    async def status(self) -> tuple[HaStatusRow, ...]:
        return await self._caller.read(tuple[HaStatusRow, ...], "/cluster/ha/status/current")

    async def manager(self) -> HaManager:
        """Return the manager status; only here maintenance mode is visible."""
        return await self._caller.read(HaManager, "/cluster/ha/status/manager_status")

    async def resources(self, *, type: str | None = None) -> tuple[HaResource, ...]:
        params: Params = {"type": type}
        return await self._caller.read(tuple[HaResource, ...], "/cluster/ha/resources", params)

    async def resource(self, sid: str) -> HaResource:
        return await self._caller.read(HaResource, path("cluster", "ha", "resources", sid))

    async def groups(self) -> tuple[HaGroup, ...]:
        return await self._caller.read(tuple[HaGroup, ...], "/cluster/ha/groups")

    async def rules(
        self, *, type: str | None = None, resource: str | None = None
    ) -> tuple[HaRule, ...]:
        params: Params = {"type": type, "resource": resource}
        return await self._caller.read(tuple[HaRule, ...], "/cluster/ha/rules", params)

    async def rule(self, rule: str) -> HaRule:
        return await self._caller.read(HaRule, path("cluster", "ha", "rules", rule))


class HaWriter(WriteEndpoints, HaReader):
    """POST, PUT and DELETE requests below ``/cluster/ha``."""

    async def add_resource(
        self,
        sid: str,
        *,
        state: str | None = None,
        group: str | None = None,
        comment: str | None = None,
        max_restart: int | None = None,
        max_relocate: int | None = None,
    ) -> None:
        """Add ``vm:ID`` to HA; ``group`` only on release 8."""
        params: Params = {
            "sid": sid, "state": state, "group": group, "comment": comment,
            "max_restart": max_restart, "max_relocate": max_relocate,
        }  # fmt: skip
        await self._caller.write("POST", "/cluster/ha/resources", params)

    async def update_resource(
        self,
        sid: str,
        *,
        state: str | None = None,
        group: str | None = None,
        comment: str | None = None,
        max_restart: int | None = None,
        max_relocate: int | None = None,
        delete: Sequence[str] = (),
        digest: str | None = None,
    ) -> None:
        params: Params = {
            "state": state, "group": group, "comment": comment, "max_restart": max_restart,
            "max_relocate": max_relocate, "delete": ",".join(delete) or None, "digest": digest,
        }  # fmt: skip
        await self._caller.write("PUT", path("cluster", "ha", "resources", sid), params)

    async def delete_resource(self, sid: str) -> None:
        await self._caller.write("DELETE", path("cluster", "ha", "resources", sid))

    async def create_group(
        self,
        group: str,
        nodes: str,
        *,
        restricted: bool | None = None,
        nofailback: bool | None = None,
        comment: str | None = None,
    ) -> None:
        params: Params = {
            "group": group, "nodes": nodes, "restricted": restricted,
            "nofailback": nofailback, "comment": comment,
        }  # fmt: skip
        await self._caller.write("POST", "/cluster/ha/groups", params)

    async def create_rule(
        self,
        rule: str,
        type: str,
        resources: Sequence[str],
        *,
        nodes: str | None = None,
        affinity: str | None = None,
        strict: bool | None = None,
        comment: str | None = None,
    ) -> None:
        params: Params = {
            "rule": rule, "type": type, "resources": ",".join(resources), "nodes": nodes,
            "affinity": affinity, "strict": strict, "comment": comment,
        }  # fmt: skip
        await self._caller.write("POST", "/cluster/ha/rules", params)

    async def update_rule(
        self,
        rule: str,
        type: str,
        *,
        resources: Sequence[str] = (),
        nodes: str | None = None,
        disable: bool | None = None,
        comment: str | None = None,
        digest: str | None = None,
    ) -> None:
        params: Params = {
            "type": type, "resources": ",".join(resources) or None, "nodes": nodes,
            "disable": disable, "comment": comment, "digest": digest,
        }  # fmt: skip
        await self._caller.write("PUT", path("cluster", "ha", "rules", rule), params)
