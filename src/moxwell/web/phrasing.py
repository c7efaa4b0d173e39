"""
Describes a machine for the dashboard: its state, stage and texts, from its conditions. Pure.

Texts say what the machine waits for, why, and what comes next. Unknown is not the same as failed.
"""

import re
from dataclasses import dataclass

from moxwell.api.infra.machine_reasons import ProxmoxMachineReason as Reason
from moxwell.web.model import ConditionView, MachineView, State

STAGES = ("Claim", "Clone", "Configure", "Boot", "Join")
_STAGE_OF: dict[str, str] = {
    "ReserveVMID": "Claim",
    "AdoptGuest": "Claim",
    "Clone": "Clone",
    "Migrate": "Clone",
    Reason.CLONING: "Clone",
    Reason.MIGRATING: "Clone",
    Reason.WAITING_FOR_CLONES: "Clone",
    "ClaimAddresses": "Configure",
    Reason.WAITING_FOR_ADDRESSES: "Configure",
    "UploadIso": "Configure",
    "ResizeDisk": "Configure",
    "SetFirewall": "Configure",
    "Configure": "Configure",
    "RecordApplied": "Configure",
    "RegisterHa": "Configure",
    Reason.CONFIGURING: "Configure",
    Reason.TASK_RUNNING: "Configure",
    Reason.BOOTSTRAPPING: "Configure",
    Reason.PLACING: "Claim",
    "Start": "Boot",
    "SetProviderID": "Boot",
    Reason.STARTING: "Boot",
    Reason.WAITING_FOR_BOOTSTRAP: "Boot",
    "EjectIso": "Join",
    "DeleteVolume": "Join",
}
_UNKNOWN = {Reason.REGION_UNREACHABLE, Reason.REGION_UNKNOWN, Reason.HOST_DOWN}
NO_HOST = Reason.INSUFFICIENT_RESOURCES
_WAITING: dict[str, str] = {  # the reason, and when the next stage begins
    NO_HOST: "Checked whenever a guest is deleted.",
    Reason.QUOTA_EXCEEDED: "When the quota of its tenant allows it.",
    Reason.WAITING_FOR_BOOTSTRAP_DATA: "When the Secret with its bootstrap data exists.",
    Reason.WAITING_FOR_CLUSTER_INFRASTRUCTURE: "When the infrastructure of its cluster is ready.",
    Reason.WAITING_FOR_CLUSTER: "When its Cluster and ProxmoxCluster exist.",
    Reason.WAITING_FOR_ADDRESSES: "When its pools have given it addresses.",
    Reason.WAITING_FOR_MACHINE: "When a Machine owns it.",
    Reason.WAITING_FOR_CLONES: "When other full clones have finished.",
    Reason.PAUSED: "When it is not paused any more.",
}
_FAILED: dict[str, str] = {
    Reason.VANISHED: "By its MachineHealthCheck.",
    Reason.STOPPED: "By its MachineHealthCheck, or start the guest.",
    Reason.SUSPENDED: "By its MachineHealthCheck, or resume the guest.",
    Reason.GUEST_FAILED: "By its MachineHealthCheck.",
    Reason.VMID_TAKEN: "When the other guest is deleted, or delete the machine.",
    Reason.NOT_OURS: "When the other guest is deleted, or delete the machine.",
    Reason.OUTSIDE_TENANT: "When its template is inside the limits of its tenant.",
}
_NEXT = {
    "Claim": ("Clone the template", "When a host and a VMID are claimed."),
    "Clone": ("Configure the guest", "When the clone task has finished."),
    "Configure": ("Start the guest", "When addresses and bootstrap ISO exist."),
    "Boot": ("Join the cluster", "When the guest has run its bootstrap data."),
    "Join": ("Nothing", "When the node is Ready."),
}
_IN_PROGRESS = {
    "Claim": "Claiming a host and a VMID",
    "Clone": "Cloning from template {template} on {host}",
    "Configure": "Configuring: {cpus} vCPU, {memory} GiB, addresses, bootstrap ISO",
    "Boot": "Booting on {host}, waiting for the guest agent",
    "Join": "Joining, waiting for node {name} to be Ready",
}
_INSUFFICIENT = re.compile(r"(\S+/\S+): needs (\d+) MiB memory, (\d+) MiB are free")
_SILENT = re.compile(r"region (\S+) does not answer")
MAX_LENGTH = 160
RETRY = "; next attempt"  # what follows is true for a moment only
_SHORT = {"Claim": "Claim", "Clone": "Clone", "Configure": "Config", "Boot": "Boot", "Join": "Join"}


@dataclass(frozen=True, slots=True)
class MachineText:
    """State, stage and texts of a machine."""

    state: State
    stage: str
    sentence: str
    headline: str
    now: str
    now_says: str
    next: str
    next_says: str
    short: str = ""
    reason: str = ""  # of the condition Ready


def ready_condition(machine: MachineView) -> ConditionView | None:
    """The condition Ready."""
    return next((c for c in machine.conditions if c.type == "Ready"), None)


def stage_of(machine: MachineView) -> str:
    """The stage between claim and node; empty at the end."""
    ready = ready_condition(machine)
    move = machine.move.removeprefix("wait: ")
    if not machine.vmid:
        return "Claim"
    if ready is not None and ready.status == "True":
        return "" if machine.node_ready else "Join"
    found = _STAGE_OF.get(move) or _STAGE_OF.get(ready.reason if ready else "")
    if not machine.host:
        return "Clone" if found != "Claim" else found  # the guest does not exist yet
    return found if found and found != "Join" else "Configure"


def short_name(machine: MachineView) -> str:
    """A short name: the node group and the last part of the name."""
    last = machine.name.rpartition("-")[2]
    return f"{machine.group}-{last}" if machine.group and last else machine.name


def describe(machine: MachineView, progress: float | None = None) -> MachineText:
    """The state and texts of a machine."""
    ready = ready_condition(machine)
    reason, message = (ready.reason, ready.message.partition(RETRY)[0]) if ready else ("", "")
    if machine.deleting:
        return _deleting(machine, message)
    if reason in _UNKNOWN or (ready is not None and ready.status == "Unknown"):
        return unknown(message or reason)
    stage = stage_of(machine)
    if not machine.observed:
        return _waiting("Claim", "", "its ProxmoxMachine does not exist yet")
    if reason in _FAILED:
        return _failed(stage, reason, message)
    if reason in _WAITING or (not machine.vmid and machine.move.startswith("wait: ")):
        return _waiting(stage, reason, message)
    if stage == "Join" and machine.node and machine.node_ready is None:
        return unknown(f"node {machine.node} does not report")
    if not stage:
        return _text("ready", "", "Done", "", "Done", "Nothing to do.", "Nothing", "")
    return _in_progress(machine, stage, progress)


def unknown(cause: str) -> MachineText:
    """The texts of a machine of which nothing is known now."""
    text = f"Unknown: {cause}"
    return _text("unknown", "", text, "Unknown", text, "", "Check again", "When it answers.")


def _failed(stage: str, reason: str, message: str) -> MachineText:
    text = message or reason
    text = text[:1].upper() + text[1:]
    return _text(
        "trouble", stage, text, "Failed", text, "", "Be replaced", _FAILED[reason], "", reason
    )


def _in_progress(machine: MachineView, stage: str, progress: float | None) -> MachineText:
    host = f"{machine.region}/{machine.host}" if machine.host else "its host"
    text = _IN_PROGRESS[stage].format(
        template=machine.template or "its template",
        host=host,
        cpus=machine.cpus,
        memory=machine.memory_mib // 1024,
        name=machine.name,
    )
    if progress is not None and stage == "Clone":
        text += f", {progress:.0%}".replace("%", " %")
    following, when = _NEXT[stage]
    state: State = "creating" if stage in {"Claim", "Clone"} else "moving"
    short = _SHORT[stage]
    if progress is not None and stage == "Clone":
        short += f" {progress * 100:.0f} %"
    return _text(state, stage, text, text.partition(",")[0], text, "", following, when, short)


def summarize_placement(message: str) -> str:
    """A message about insufficient memory in one line: the host with the most free memory."""
    parts = message.removeprefix("no host has room: ").split(" | ")
    silent = _SILENT.findall(parts[-1])
    hosts = [_INSUFFICIENT.match(part) for part in (parts[:-1] if silent else parts)]
    rows = [found.groups() for found in hosts if found is not None]
    if not rows or len(rows) < len(hosts):
        return (
            message if len(message) <= MAX_LENGTH else f"{message[:MAX_LENGTH].rsplit(' ', 1)[0]} …"
        )
    host, _, free = max(rows, key=lambda row: int(row[2]))
    need, most = round(int(rows[0][1]) / 1024), round(int(free) / 1024)
    unanswered = "".join(f"; region {name} does not answer" for name in silent)
    return f"{need} GiB on one host; most is free on {host}: {most} GiB{unanswered}"


def _waiting(stage: str, reason: str, message: str) -> MachineText:
    claim = "Claim a host and a VMID"
    following = claim if stage == "Claim" else _NEXT.get(stage, ("", ""))[0]
    when = _WAITING.get(reason, "When this has changed.")
    if reason == NO_HOST:
        text = f"Waiting for a host: {summarize_placement(message)}"
        words = ("Waiting for a host", text, message, following, when, "Wait", reason)
        return _text("waiting", stage, text, *words)
    text = f"Waiting: {message or reason}"
    words = ("Waiting", message or reason, "", following, when, "Wait", reason)
    return _text("waiting", stage, text, *words)


def _deleting(machine: MachineView, message: str) -> MachineText:
    text = "Deleting"
    if machine.pods:
        text += ", 1 pod still on it" if machine.pods == 1 else f", {machine.pods} pods still on it"
    elif message:
        text += f": {message.removeprefix('next: ')}"
    there = "guest, disks and addresses are" if machine.vmid else "objects are"
    return _text(
        "deleting",
        "",
        text,
        "Deleting",
        text,
        "",
        "Be deleted",
        f"When its {there} deleted.",
        "Drain" if machine.pods else "Delete",
    )


def _text(state: State, stage: str, *rest: str) -> MachineText:
    return MachineText(state, stage, *rest)
