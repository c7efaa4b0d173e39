"""
What a machine does, in words: from conditions and the next move to a state and sentences. Pure.

Every mark has a sentence: what is awaited, why, and what comes next. Unknown is not failed.
"""

import re
from dataclasses import dataclass

from moxwell.web.model import Condition, Machine, State

STAGES = ("Claim", "Clone", "Configure", "Boot", "Join")
_STAGE_OF = {
    "TakeClaim": "Claim",
    "Adopt": "Claim",
    "Clone": "Clone",
    "Migrate": "Clone",
    "Cloning": "Clone",
    "Migrating": "Clone",
    "AskAddresses": "Configure",
    "WaitingForAddresses": "Configure",
    "UploadIso": "Configure",
    "Resize": "Configure",
    "SetFirewall": "Configure",
    "Configure": "Configure",
    "RegisterHa": "Configure",
    "Configuring": "Configure",
    "TaskRunning": "Configure",
    "Bootstrapping": "Configure",
    "Placing": "Claim",
    "Start": "Boot",
    "NameIt": "Boot",
    "Starting": "Boot",
    "WaitingForBootstrap": "Boot",
    "EjectIso": "Join",
    "DeleteVolume": "Join",
}
_UNKNOWN = {"RegionUnreachable", "RegionUnknown", "HostDown"}
_WAITS = {
    "InsufficientResources",
    "WaitingForBootstrapData",
    "WaitingForClusterInfrastructureReady",
    "WaitingForClusterInfrastructure",
    "WaitingForAddresses",
    "WaitingForMachine",
    "Paused",
}
_NEXT = {
    "Claim": ("Clone the template", "As soon as a place and an id are claimed."),
    "Clone": ("Configure the guest", "When the clone has ended."),
    "Configure": ("Start the guest", "When addresses and seed are there."),
    "Boot": ("Join the cluster", "When the guest has run its bootstrap data."),
    "Join": ("Nothing", "When the node is Ready."),
}
_DOES = {
    "Claim": "Claims a place and an id",
    "Clone": "Cloning from template {template} on {host}",
    "Configure": "Configuring: {cpus} vCPU, {memory} GiB, addresses, seed",
    "Boot": "Booting on {host}, waits for the guest to report",
    "Join": "Joining, waits for node {name} to be Ready",
}
_LACKS = re.compile(r"(\S+/\S+): needs (\d+) MiB memory, (\d+) MiB are free")
LONG = 160
_SHORT = {"Claim": "Claim", "Clone": "Clone", "Configure": "Config", "Boot": "Boot", "Join": "Join"}


@dataclass(frozen=True, slots=True)
class Words:
    """What is said of a machine."""

    state: State
    stage: str
    sentence: str
    headline: str
    now: str
    now_says: str
    next: str
    next_says: str
    short: str = ""


def ready_condition(machine: Machine) -> Condition | None:
    """The condition that sums the others up."""
    return next((c for c in machine.conditions if c.type == "Ready"), None)


def stage_of(machine: Machine) -> str:
    """Where on its way from claim to node a machine is; empty: at the end."""
    ready = ready_condition(machine)
    move = machine.move.removeprefix("wait: ")
    if not machine.vmid:
        return "Claim"
    if ready is not None and ready.status == "True":
        return "" if machine.node_ready else "Join"
    found = _STAGE_OF.get(move) or _STAGE_OF.get(ready.reason if ready else "")
    return found if found and found != "Join" else "Configure"


def short_name(machine: Machine) -> str:
    """A name for small places: the group and the last part, as the cluster is seen anyway."""
    last = machine.name.rpartition("-")[2]
    return f"{machine.group}-{last}" if machine.group and last else machine.name


def say(machine: Machine, progress: float | None = None) -> Words:
    """State and sentences of a machine."""
    ready = ready_condition(machine)
    reason, message = (ready.reason, ready.message) if ready else ("", "")
    if machine.deleting:
        return _leaving(machine, message)
    if reason in _UNKNOWN or (ready is not None and ready.status == "Unknown"):
        text = f"Unknown: {message or reason}"
        return _words("unknown", "", text, "Unknown", text, "", "Look again", "When it answers.")
    stage = stage_of(machine)
    if reason in _WAITS or (not machine.vmid and machine.move.startswith("wait: ")):
        return _waiting(stage, reason, message)
    if reason == "Vanished" or (machine.node_ready is False and not stage):
        text = message or "The node does not report any more"
        return _words(
            "trouble", stage, text, "Trouble", text, "", "Be replaced", "By its health check."
        )
    if not stage:
        return _words("ready", "", "Done", "", "Done", "Nothing to do.", "Nothing", "")
    return _under_way(machine, stage, progress)


def _under_way(machine: Machine, stage: str, progress: float | None) -> Words:
    host = f"{machine.region}/{machine.host}" if machine.host else "its host"
    text = _DOES[stage].format(
        template=machine.template or "its template",
        host=host,
        cpus=machine.cpus,
        memory=machine.memory_mib // 1024,
        name=machine.name,
    )
    if progress is not None and stage == "Clone":
        text += f", {progress:.0%}".replace("%", " %")
    following, when = _NEXT[stage]
    state: State = "made" if stage in {"Claim", "Clone"} else "moving"
    short = _SHORT[stage]
    if progress is not None and stage == "Clone":
        short += f" {progress * 100:.0f} %"
    return _words(state, stage, text, text.partition(",")[0], text, "", following, when, short)


def place_in_short(message: str) -> str:
    """What is missing everywhere, and where it is nearest: a line instead of one for each host."""
    rows = _LACKS.findall(message)
    if not rows or len(rows) < message.count(" | ") + 1:
        return message if len(message) <= LONG else f"{message[:LONG].rsplit(' ', 1)[0]} …"
    host, needs, _ = rows[0]
    host, _, free = max(rows, key=lambda row: int(row[2]))
    need, most = round(int(needs) / 1024), round(int(free) / 1024)
    return f"{need} GiB on one host; most is free on {host}: {most} GiB"


def _waiting(stage: str, reason: str, message: str) -> Words:
    if reason == "InsufficientResources":
        text = f"Waits for a place: {place_in_short(message)}"
        following = ("Take the first host with room", "It is looked for whenever a guest leaves.")
        return _words(
            "waiting", stage, text, "Waiting for a place", text, message, *following, "Wait"
        )
    text = f"Waits: {message}" if message else f"Waits: {reason}"
    return _words(
        "waiting",
        stage,
        text,
        "Waiting",
        message or reason,
        "",
        *_NEXT.get(stage, ("", "")),
        "Wait",
    )


def _leaving(machine: Machine, message: str) -> Words:
    text = "Leaving"
    if machine.pods:
        text += f", {machine.pods} pods still on it"
    elif message:
        text += f": {message.removeprefix('next: ')}"
    return _words(
        "leaving",
        "",
        text,
        "Leaving",
        text,
        "",
        "Be gone",
        "When guest, disks and addresses are.",
        "Drain" if machine.pods else "Leave",
    )


def _words(state: State, stage: str, *rest: str) -> Words:
    return Words(state, stage, *rest)
