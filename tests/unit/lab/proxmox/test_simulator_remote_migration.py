"""Remote migration: the checks on this side, in the order of Proxmox's code."""

import pytest

from support.simulator_session import SimulatorSession, run_session

FINGERPRINT = ":".join(["AB"] * 32)
REFUSED = "Can't connect to 192.0.2.7:8006 (Connection refused)"
HA = "cannot remote-migrate {} that is configured for HA"

CASES: list[tuple[str, str, set[str], dict[str, str], str]] = [
    ("an unknown fingerprint", "qemu", {"running", "replicated"}, {}, REFUSED),
    ("HA before the connection", "qemu", {"ha", "running"}, {}, HA.format("VM")),
    ("a replicated VM", "qemu", {"replicated", "running"}, {"fingerprint": FINGERPRINT},
     "cannot remote-migrate replicated VM"),
    ("a running VM", "qemu", {"running"}, {"fingerprint": FINGERPRINT},
     "can't migrate running VM without --online"),
    ("online", "qemu", {"running"}, {"fingerprint": FINGERPRINT, "online": "1"},
     "remote migration requires explicit storage mapping!"),
    ("a bad map", "qemu", set(),
     {"fingerprint": FINGERPRINT, "target-storage": "thin:tank,thin:ceph"},
     "failed to parse storage map: duplicate mapping for source 'thin'"),
    ("a bad bridge map", "qemu", set(),
     {"fingerprint": FINGERPRINT, "target-storage": "thin", "target-bridge": "1,vmbr0"},
     "failed to parse bridge map: identity mapping cannot be combined with other mappings"),
    ("a stopped VM", "qemu", set(), {"fingerprint": FINGERPRINT, "target-storage": "thin"},
     REFUSED),
    ("a running container", "lxc", {"running", "ha"}, {},
     "can't migrate running container without --online or --restart"),
    ("a container of HA", "lxc", {"ha"}, {}, HA.format("CT")),
    ("a container", "lxc", set(), {}, REFUSED),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_another_cluster_is_not_reached(
    case: tuple[str, str, set[str], dict[str, str], str],
) -> None:
    _, kind, state, form, message = case

    async def body(sim: SimulatorSession) -> None:
        if kind == "qemu":
            await sim.vm(100, scsi0="tank:1")
        else:
            template = "shared:vztmpl/debian-12.tar.gz"
            await sim.run_task(
                "POST", "/nodes/n1/lxc", vmid="100", ostemplate=template, rootfs="shared:1"
            )
        await prepare(sim, kind, state)
        endpoint = "host=192.0.2.7,apitoken=t"
        if "fingerprint" in form:
            endpoint += f",fingerprint={form['fingerprint']}"
        sent = {"target-endpoint": endpoint, "target-bridge": "1", "target-storage": "1"}
        sent |= {name: value for name, value in form.items() if name != "fingerprint"}
        answer = await sim.post(f"/nodes/n1/{kind}/100/remote_migrate", **sent)
        said = {text.strip() for text in answer.errors.values()} or {answer.message}
        assert (answer.status, said) == (400 if answer.errors else 500, {message})

    run_session(body)


async def prepare(sim: SimulatorSession, kind: str, state: set[str]) -> None:
    """Bring the guest into a state."""
    if "running" in state:
        await sim.run_task("POST", f"/nodes/n1/{kind}/100/status/start")
    if "ha" in state:
        sid = f"{'vm' if kind == 'qemu' else 'ct'}:100"
        assert (await sim.post("/cluster/ha/resources", sid=sid, state="ignored")).status == 200
    if "replicated" in state:
        made = await sim.post("/cluster/replication", id="100-0", target="n2", type="local")
        assert made.status == 200, made
