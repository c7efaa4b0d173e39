"""What the dashboard shows, made up for tests: machines of one cluster on hosts of two regions."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from moxwell.web.model import (
    ClusterView,
    ConditionView,
    GuestView,
    HostView,
    InfrastructureOverview,
    MachineView,
    NodeGroupView,
    RegionView,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
READY = (ConditionView(type="Ready", status="True", reason="Provisioned"),)


def machine(number: int, region: str = "r1", **more: Any) -> MachineView:
    made = MachineView(
        namespace="t", name=f"demo-md0-{number}", cluster="demo", group="md0", region=region,
        host=f"{region}-h{number}", vmid=100 + number, memory_mib=16384, cpus=4,
        node=f"demo-md0-{number}", node_ready=True, conditions=READY,
    )  # fmt: skip
    return replace(made, **more)


def waiting(number: int, reason: str, message: str = "") -> MachineView:
    found = ConditionView(type="Ready", status="False", reason=reason, message=message)
    return machine(
        number, vmid=0, host="", node="", node_ready=False, conditions=(found,),
        move=f"wait: {reason}",
    )  # fmt: skip


def overview(
    *machines: MachineView, lost: tuple[str, ...] = (), down: tuple[str, ...] = (), **more: Any
) -> InfrastructureOverview:
    places = {(m.region, m.host) for m in machines if m.host} | {("r1", "r1-h0"), ("r2", "r2-h0")}
    made = InfrastructureOverview(
        now=NOW, mode="lab", version="1",
        regions=tuple(
            RegionView(name=r, reachable=r not in lost, error="no URL answered; next attempt")
            for r in ("r1", "r2")
        ),
        hosts=tuple(
            HostView(
                region=r, name=h, online=r not in lost and h not in down, cpus=16,
                memory_mib=131072,
            )
            for r, h in sorted(places)
        ),
        guests=tuple(
            GuestView(
                region=m.region, host=m.host, vmid=m.vmid, name=m.name, running=True, cpus=4,
                memory_mib=16384,
            )
            for m in machines if m.vmid
        ),
        clusters=(
            ClusterView(
                namespace="t", name="demo", ready=True,
                groups=(NodeGroupView(name="md0", replicas=len(machines), ready=len(machines)),),
            ),
        ),
        machines=machines,
    )  # fmt: skip
    return replace(made, **more)
