"""Rights on ProxmoxMachines in one namespace give no rights on guests of others."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moxwell.api.infra.admission import validation_errors
from moxwell.api.infra.machine import ProxmoxMachine, ProxmoxMachineSpec
from moxwell.api.infra.template import Claim
from moxwell.api.kinds import Resource
from moxwell.api.meta import ObjectMeta
from moxwell.api.requests import Request, UserInfo
from moxwell.app import admission
from moxwell.app.embedded_api import open_store
from moxwell.controllers.infra.guest_names import iso_filename, mark_of
from moxwell.controllers.infra.machine.adoption import GuestAdoption
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.kube.client import Kube
from moxwell.pve.client import PveWriter
from moxwell.pve.effects import Effects
from moxwell.pve.guests import GuestConfig
from moxwell.pve.ownership import Foreign, Mark, user_tags
from moxwell.pve.steps import (
    AddToHaRule,
    Destroy,
    GuestRef,
    GuestStep,
    MakeTemplate,
    Migrate,
    RegisterHa,
    RemoveHa,
    RemoveStaleClone,
    SetFirewall,
    SetPool,
    Shutdown,
    Start,
    Stop,
)
from moxwell.testing.loop import LoopClock, run_virtual
from moxwell.testing.machine_objects import apply_cluster, apply_machine
from moxwell.testing.scripted_transport import ScriptedTransport
from moxwell.testing.two_regions import ready, reason, running

UUID = "99999999-1111-4222-8333-444444444444"
CLUSTER_LABEL = "cluster.x-k8s.io/cluster-name"
INFRA = "/apis/infrastructure.cluster.x-k8s.io"


def machine(
    namespace: str, cluster: str, *, claimed: bool = True, provider: str = ""
) -> ProxmoxMachine:
    labels = {CLUSTER_LABEL: cluster} if cluster else {}
    claim = Claim(host="pve1", uuid=UUID, iso_storage="local") if claimed else None
    return ProxmoxMachine(
        metadata=ObjectMeta(
            namespace=namespace, name="m", uid=f"{namespace}-{cluster}", labels=labels
        ),
        spec=ProxmoxMachineSpec(claim=claim, provider_id=provider, virtual_machine_id=120),
    )


# ---- stories


def test_a_stranger_is_neither_adopted_nor_destroyed_by_its_uuid() -> None:
    async def main() -> None:
        async with running("north") as (env, _):
            await apply_cluster(env, providerIDFormat="UUID")
            env.chaos("north", "take-vmid", vmid=120, name="m", node="pve2")
            guest = env.region("north").guests[120]
            guest.conf |= {"smbios1": f"uuid={UUID}", "tags": "db;moxwell-adopt.default.other"}
            guest.running = True
            before = dict(guest.conf)
            where: dict[str, Any] = {"region": "north", "virtualMachineID": 120}
            where["providerID"] = f"proxmox://{UUID}"
            await apply_machine(env, "m", templateID=9000, **where)
            refused = await env.until("m", lambda m: reason(m) == "NotOurs")
            assert refused.spec.claim is None
            await env.delete("m")
            await env.until_gone("m")
            assert env.region("north").guests[120].conf == before
            assert env.region("north").guests[120].running

    run_virtual(main())


def test_a_copied_claim_destroys_nothing() -> None:
    async def main() -> None:
        async with running("north") as (env, _):
            await apply_cluster(env)
            await apply_machine(env, "victim", templateID=9000)
            victim = await env.until("victim", ready)
            assert victim.spec.claim is not None
            before = dict(env.region("north").guests[victim.spec.virtual_machine_id or 0].conf)
            await apply_cluster(env, "evil")
            copy: dict[str, Any] = {
                "region": "north",
                "virtualMachineID": victim.spec.virtual_machine_id,
                "claim": {"host": victim.spec.claim.host, "uuid": victim.spec.claim.uuid},
                "providerID": victim.spec.provider_id,
            }
            await apply_machine(env, "thief", "evil", templateID=9000, **copy)
            await env.until("thief", lambda m: reason(m) == "Vanished")
            await env.delete("thief")
            await env.until_gone("thief")
            await asyncio.sleep(120)
            guest = env.region("north").guests[victim.spec.virtual_machine_id or 0]
            assert guest.running
            assert dict(guest.conf) == before
            await env.until("victim", ready)

    run_virtual(main())


def test_a_guest_of_an_earlier_version_is_bound_by_its_owner() -> None:
    async def main() -> None:
        async with running("north") as (env, _):
            await apply_cluster(env)
            await apply_machine(env, "m", templateID=9000)
            made = await env.until("m", ready)
            vmid = made.spec.virtual_machine_id or 0
            guest = env.region("north").guests[vmid]
            tags = [t for t in str(guest.conf["tags"]).split(";") if not t.startswith("moxc-")]
            line = str(guest.conf["description"]).partition("\nmoxwell-cluster=")[0]
            guest.conf |= {"tags": ";".join(tags), "description": line}
            env.engine.runtimes["north"].mark_changed(vmid)
            await asyncio.sleep(200)
            assert "moxwell-cluster=default/c" in str(guest.conf["description"])
            assert mark_of(made).cluster_tag in str(guest.conf["tags"])
            await env.delete("m")
            await env.until_gone("m")
            assert vmid not in env.region("north").guests

    run_virtual(main())


# ---- the rule


names = st.sampled_from(["a", "b", "c-d", ""])


@given(
    owner=st.tuples(names, names),
    thief=st.tuples(names, names),
    claimed=st.booleans(),
    tagged=st.booleans(),
    described=st.booleans(),
    allowed=st.sampled_from([(), ("*/*",), ("a/*",)]),
    provider=st.sampled_from(["", f"proxmox://{UUID}", "proxmox://north/120"]),
)
def test_a_bound_guest_belongs_to_its_cluster_alone(
    owner: tuple[str, str],
    thief: tuple[str, str],
    claimed: bool,
    tagged: bool,
    described: bool,
    allowed: tuple[str, ...],
    provider: str,
) -> None:
    mark = Mark(UUID, "/".join(owner))
    raw = {"smbios1": f"uuid={UUID}"}
    raw |= {"tags": mark.tags()} if tagged or not described else {}
    raw |= {"description": mark.describe("a text")} if described else {}
    other = machine(*thief, claimed=claimed, provider=provider)
    ours = GuestAdoption(allowed).is_ours(other, GuestConfig(raw))
    same_uuid = mark_of(other).key == mark.key
    assert ours == (owner == thief and same_uuid)


@pytest.mark.parametrize(
    ("raw", "allowed", "ours"),
    [
        pytest.param({}, (), False, id="no grant"),
        pytest.param({"tags": "moxwell-adopt"}, (), False, id="a tag without a cluster"),
        pytest.param({"tags": "moxwell-adopt.a.c"}, (), True, id="a tag for the cluster"),
        pytest.param({"tags": "moxwell-adopt.a.cc"}, (), False, id="a tag for another cluster"),
        pytest.param({}, ("a/c",), True, id="configured"),
        pytest.param({}, ("a/*",), True, id="configured for the namespace"),
        pytest.param({}, ("b/*",), False, id="configured for another namespace"),
        pytest.param(
            {"description": "moxwell-owner=x"}, ("*/*",), False, id="a guest of another owner"
        ),
        pytest.param(
            {"description": "moxwell-owner=x\nmoxwell-cluster=b/c", "tags": "moxwell-adopt.a.c"},
            (),
            True,
            id="handed over by the operator",
        ),
    ],
)
def test_adoption_needs_a_grant(raw: dict[str, str], allowed: tuple[str, ...], ours: bool) -> None:
    config = GuestConfig({"smbios1": f"uuid={UUID}", **raw})
    wanted = machine("a", "c", claimed=False, provider=f"proxmox://{UUID}")
    assert GuestAdoption(allowed).is_ours(wanted, config) is ours
    stranger = machine("a", "c", claimed=False, provider="proxmox://00000000-0000-4000-8000-0")
    assert not GuestAdoption(allowed).is_ours(stranger, config)


@pytest.mark.parametrize(
    ("provider", "tags", "allowed", "ours"),
    [
        pytest.param("proxmox://r1/100", "moxwell-adopt.a.c", (), True, id="its VMID, tagged"),
        pytest.param("proxmox://r1/100", "karpenter", ("*/*",), False, id="its VMID, configured"),
        pytest.param("proxmox://r1/100", "moxwell-adopt.b.c", (), False, id="for another cluster"),
        pytest.param("proxmox://r1/101", "moxwell-adopt.a.c", (), False, id="another VMID"),
        pytest.param("proxmox://r2/100", "moxwell-adopt.a.c", (), False, id="another region"),
        pytest.param("", "moxwell-adopt.a.c", (), False, id="no provider ID"),
    ],
)
def test_a_guest_named_by_its_vmid_is_adopted_by_its_tag_only(
    provider: str, tags: str, allowed: tuple[str, ...], ours: bool
) -> None:
    meta = ObjectMeta(
        name="m", namespace="a", uid="u", labels={"cluster.x-k8s.io/cluster-name": "c"}
    )
    spec = ProxmoxMachineSpec(region="r1", virtual_machine_id=100, provider_id=provider)
    config = GuestConfig({"smbios1": f"uuid={UUID}", "tags": tags})
    wanted = ProxmoxMachine(metadata=meta, spec=spec)
    assert GuestAdoption(allowed).is_ours(wanted, config) is ours


def test_two_claims_of_an_unbound_guest_own_nothing() -> None:
    one, two = machine("a", "c"), machine("b", "c")
    config = GuestConfig({"description": f"moxwell-owner={UUID}"})
    rule = GuestAdoption((), lambda key: [one, two] if key == mark_of(one).key else [])
    assert not rule.is_ours(one, config)
    assert not rule.is_ours(two, config)
    assert GuestAdoption((), lambda _: [one]).is_ours(one, config)


def test_a_copied_claim_names_another_bootstrap_iso() -> None:
    one, two = machine("a", "c"), machine("b", "c")
    assert one.spec.claim is not None
    assert iso_filename(one, one.spec.claim) != iso_filename(two, one.spec.claim)


THIEF = GuestRef("r1", "pve1", 100, Mark(UUID, "b/c"))
STEPS: tuple[GuestStep, ...] = (
    Start(THIEF),
    Stop(THIEF),
    Shutdown(THIEF),
    Destroy(THIEF),
    MakeTemplate(THIEF),
    Migrate(THIEF, target="pve2"),
    RegisterHa(THIEF),
    RemoveHa(THIEF),
    AddToHaRule(THIEF, rule="r"),
    SetFirewall(THIEF, options={"enable": True}),
    SetPool(THIEF, pool="p"),
    RemoveStaleClone(THIEF, skip_lock=False),
)


@pytest.mark.parametrize("step", STEPS, ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("tagged", [True, False])
async def test_a_step_refuses_a_guest_of_another_cluster(step: GuestStep, tagged: bool) -> None:
    mark = Mark(UUID, "a/c")
    config = {"description": mark.describe(), "tags": mark.tags() if tagged else ""}
    status = {"status": "running", "vmid": 100, "tags": config["tags"]}

    def answer(method: str, path: str, params: object) -> Any:
        assert method == "GET"
        return status if path.endswith("current") else config

    transport = ScriptedTransport(answer)
    with pytest.raises(Foreign):
        await step.perform(PveWriter(transport, Effects(clock=LoopClock())))


# ---- tags


RESERVED = ("mox-x", "moxc-y", "moxwell-csi-helper", "Moxwell-adopt.a.c", "moxwell")


def test_tags_with_a_meaning_are_refused_and_never_written() -> None:
    spec = ProxmoxMachineSpec(template_id=9000, tags=("web", *RESERVED))
    obj = ProxmoxMachine(metadata=ObjectMeta(namespace="a", name="m", uid="u"), spec=spec)
    (error,) = validation_errors(obj)
    assert all(tag in error for tag in RESERVED)
    assert user_tags(spec.tags) == ("web",)


# ---- admission


def _body(version: str = "v1beta2", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"infrastructure.cluster.x-k8s.io/{version}",
        "kind": "ProxmoxMachine",
        "metadata": {"name": "m", "namespace": "team"},
        "spec": {"templateID": 9000, **spec},
    }


CLAIM = {"host": "pve1", "uuid": UUID}


@pytest.mark.parametrize(
    ("new", "old", "refused"),
    [
        (_body(), None, False),
        (_body(claim=CLAIM), None, True),
        (_body(claim=CLAIM), _body(), True),
        (_body(), _body(claim=CLAIM), True),
        (_body(claim={**CLAIM, "staleClones": ["north/1"]}), _body(claim=CLAIM), True),
        (_body(claim=CLAIM, numCores=4), _body(claim=CLAIM), False),
    ],
)
def test_only_writes_that_change_the_claim_are_refused(
    new: dict[str, Any], old: dict[str, Any] | None, refused: bool
) -> None:
    group = "infrastructure.cluster.x-k8s.io"
    if refused:
        with pytest.raises(admission.ClaimDenied):
            admission.refuse_claim(group, "ProxmoxMachine", new, old)
    else:
        admission.refuse_claim(group, "ProxmoxMachine", new, old)


async def _send(
    store: EmbeddedApiServer, user: str, method: str, path: str, body: object, kind: str = "json"
) -> int:
    media = {"json": "application/json", "merge": "application/merge-patch+json"}[kind]
    request = Request(
        method=method,
        path=path,
        headers={"content-type": media},
        body=json.dumps(body).encode(),
        user=UserInfo(name=user, groups=("system:authenticated",)),
    )
    return (await store.handle(request)).status


def _role(name: str, kind: str, *verbs: str) -> dict[str, Any]:
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": list(verbs)}]
    api = "rbac.authorization.k8s.io/v1"
    meta = {"name": name} if kind == "ClusterRole" else {"name": name, "namespace": "team"}
    return {"apiVersion": api, "kind": kind, "metadata": meta, "rules": rules}


def _bound(role: dict[str, Any], user: str) -> dict[str, Any]:
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": role["kind"]}
    return {
        **role,
        "kind": f"{role['kind']}Binding",
        "roleRef": {**ref, "name": role["metadata"]["name"]},
        "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
    }


async def _allow(kube: Kube, role: dict[str, Any], user: str) -> None:
    group, spaced = "rbac.authorization.k8s.io", role["kind"] == "Role"
    plural = f"{role['kind'].lower()}s"
    await kube.create(role, Resource(group, "v1", plural, role["kind"], spaced))
    binding = {k: v for k, v in _bound(role, user).items() if k != "rules"}
    bindings = Resource(group, "v1", f"{plural[:-1]}bindings", binding["kind"], spaced)
    await kube.create(binding, bindings)


def test_a_user_with_all_rights_in_a_namespace_cannot_write_a_claim() -> None:
    spaces = Resource("", "v1", "namespaces", "Namespace", namespaced=False)

    async def main() -> None:
        store = await open_store(LoopClock())
        kube = Kube(store)
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
        await kube.create(space, spaces)
        await _allow(kube, _role("all", "Role", "*"), "tina")
        await _allow(kube, _role("mover", "ClusterRole", "*"), "olga")
        path = f"{INFRA}/v1beta2/namespaces/team/proxmoxmachines"
        for version in ("v1beta2", "v1alpha2", "v1alpha1"):
            at = path.replace("v1beta2", version)
            if await _send(store, "tina", "POST", at, _body(version, claim=CLAIM)) == 201:
                found = await kube.get(ProxmoxMachine, "m", "team")
                assert found.spec.claim is None  # that version has no claim
                await kube.delete(ProxmoxMachine, "m", "team")
        assert await _send(store, "tina", "POST", path, _body()) == 201
        change = {"spec": {"claim": CLAIM}}
        assert await _send(store, "tina", "PATCH", f"{path}/m", change, "merge") == 403
        assert await _send(store, "olga", "PATCH", f"{path}/m", change, "merge") == 200
        assert await _send(store, "tina", "DELETE", f"{path}/m", {}) == 200
        assert await _send(store, "olga", "POST", path, _body(claim=CLAIM)) == 201
        await store.stop()

    run_virtual(main())
