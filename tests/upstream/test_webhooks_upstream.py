"""
Conversion and admission as the release installs them, asked by a genuine apiserver.

The manifests are those of the release, but for the address: there is no Service network here, so
the webhooks stand under a URL. The operator's own composition serves them, with the rights of the
release's service account. An object of CAPMOX was there before we came.
"""

import asyncio
import base64
import json
import random
import runpy
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
import yaml
from cryptography import x509
from hypothesis import HealthCheck, Phase, given, settings

from envtest.control_plane import PROGRAMS, ControlPlane
from envtest.plugin import require
from envtest.process import free_port
from moxwell.api import crd, json_merge, registry, validation
from moxwell.api.capi.core import Cluster
from moxwell.api.infra import convert
from moxwell.api.kinds import Object, Resource
from moxwell.app import operator
from moxwell.clock import SystemClock
from moxwell.controllers.infra.region_registry import RegionRegistry
from moxwell.kube import kubeconfig
from moxwell.kube.client import Kube
from moxwell.kube.errors import ApiServerAnswer, InvalidObject, WriteConflict
from moxwell.kube.transport import KubeTransport
from moxwell.pki import certificates
from moxwell.pki import serving as serving_certificates
from moxwell.pki.serving import ServingCertificates
from moxwell.pve import config
from moxwell.pve.regions import Regions
from moxwell.runtime.manager import Runtime, assemble
from moxwell.runtime.settings import Listen, ManagerSettings
from moxwell.runtime.webhook_ca import CRDS, SECRETS, VALIDATING, read_secret, write_secret
from support.objects import objects

pytestmark = [
    pytest.mark.genuine,
    pytest.mark.slow,
    pytest.mark.xdist_group("webhooks"),
    pytest.mark.asyncio(loop_scope="module"),
]
ROOT = Path(__file__).parents[2]
SPACE, ACCOUNT = "moxwell-system", "system:serviceaccount:moxwell-system:moxwell-controller-manager"
PATIENCE_SECONDS = 240
GROUP = "infrastructure.cluster.x-k8s.io"
MACHINES = f"proxmoxmachines.{GROUP}"
CONFIG = "clusters: [{url: 'https://127.0.0.1:1', region: r, token_id: a@pve!b, token_secret: c}]"
Json = dict[str, Any]
HOOK = crd.ConversionWebhook(service="moxwell-webhook-service", namespace=SPACE)

OLD_MACHINE: Json = {
    "sourceNode": "pve1",
    "templateID": 9000,
    "numCores": 2,
    "memoryMiB": 4096,
    "disks": {"bootVolume": {"disk": "scsi0", "sizeGb": 20}},
    "network": {
        "default": {"bridge": "vmbr0", "model": "virtio", "dnsServers": ["1.1.1.1"]},
        "additionalDevices": [{"name": "net1", "bridge": "vmbr1", "mtu": 1400, "vlan": 7}],
    },
    "checks": {"skipCloudInitStatus": True},
    "tags": ["a", "b"],
}
NEW_MACHINE: Json = {
    "templateName": "ubuntu",
    "sourceNode": "pve1",
    "numCores": 4,
    "memoryMiB": 8192,
    "cpuType": "x86-64-v3",
    "numa": True,
    "spread": "Require",
    "bios": "ovmf",
    "disks": {"bootVolume": {"disk": "scsi0", "sizeGb": 20}},
    "firewallGroups": ["web"],
    "whenStopped": "Start",
    "shutdownSeconds": 30,
}
CLUSTER: Json = {
    "controlPlaneEndpoint": {"host": "10.0.0.4", "port": 6443},
    "ipv4Config": {"addresses": ["10.0.0.10-10.0.0.99"], "prefix": 24, "gateway": "10.0.0.1"},
    "dnsServers": ["8.8.8.8"],
    "allowedNodes": ["pve1", "pve2"],
}
SPECS: dict[tuple[str, str], Json] = {
    ("ProxmoxMachine", "v1alpha1"): OLD_MACHINE,
    ("ProxmoxMachine", "v1beta2"): NEW_MACHINE,
    ("ProxmoxMachineTemplate", "v1alpha1"): {"template": {"spec": OLD_MACHINE}},
    ("ProxmoxMachineTemplate", "v1beta2"): {"template": {"spec": NEW_MACHINE}},
    ("ProxmoxCluster", "v1alpha1"): CLUSTER,
    ("ProxmoxCluster", "v1beta2"): CLUSTER,
    ("ProxmoxClusterTemplate", "v1alpha1"): {"template": {"spec": CLUSTER}},
    ("ProxmoxClusterTemplate", "v1beta2"): {"template": {"spec": CLUSTER}},
}
RESOURCES = {(k.resource.kind, k.resource.version): k.resource for k in convert.KINDS}


class Hasty(SystemClock):
    """The machine's clock, some days ahead; ``poke`` ends the sleep of whoever looks by the way."""

    def __init__(self) -> None:
        self.ahead = timedelta()
        self._poked = asyncio.Event()

    def now(self) -> datetime:
        return super().now() + self.ahead

    def poke(self) -> None:
        self._poked.set()
        self._poked = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._poked.wait()


# ---- the stage


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[ControlPlane]:
    require(*PROGRAMS)
    with ControlPlane(tmp_path_factory.mktemp("plane")) as control_plane:
        control_plane.start()
        asyncio.run(prepare(control_plane, port))
        yield control_plane


async def prepare(plane: ControlPlane, port: int) -> None:
    """CAPMOX's CRD with an object of its own, then the release over it."""
    async with connect(plane.kubeconfig) as transport:
        kube = Kube(transport)
        await kube.apply(as_capmox(), CRDS)
        await established(kube, MACHINES)
        await kube.create(tree("ProxmoxMachine", "v1alpha1", "veteran"), resource_of())
        for manifest in [*upstream(), *release(port)]:
            await kube.apply(manifest, of(manifest), force=True)


def resource_of(kind: str = "ProxmoxMachine", version: str = "v1alpha1") -> Resource:
    return RESOURCES[kind, version]


def as_capmox() -> Json:
    """The kind as it was: one version, stored in that."""
    whole = next(c for c in registry.make_crds() if c["metadata"]["name"] == MACHINES)
    first = next(v for v in whole["spec"]["versions"] if v["name"] == "v1alpha1")
    spec = {**whole["spec"], "versions": [{**first, "storage": True}]}
    return {**whole, "spec": spec}


def upstream() -> list[Json]:
    return [c for c in registry.make_crds() if not c["metadata"]["name"].startswith("proxmox")]


def release(port: int) -> list[Json]:
    """What the release applies, without its Deployment, at a URL instead of a Service."""
    found: list[Json] = runpy.run_path(str(ROOT / "release" / "render.py"))["components"]()
    for manifest in found:
        spec = manifest.get("spec", {})
        clients = [h["clientConfig"] for h in manifest.get("webhooks", ())]
        if hook := spec.get("conversion", {}).get("webhook"):
            clients.append(hook["clientConfig"])
        for client in clients:
            path = client.pop("service")["path"]
            client["url"] = f"https://127.0.0.1:{port}{path}"
    return [m for m in found if m["kind"] not in ("Deployment", "Secret")]


def of(manifest: Json) -> Resource:
    group, _, version = manifest["apiVersion"].rpartition("/")
    kind = manifest["kind"]
    spaced = "namespace" in manifest["metadata"]
    plural = kind.lower().removesuffix("y") + ("ies" if kind.endswith("y") else "s")
    return Resource(group, version, plural, kind, spaced)


def connect(path: Path | str) -> KubeTransport:
    return KubeTransport(kubeconfig.load([Path(path)]).access(SystemClock(), {}))


async def established(kube: Kube, name: str) -> None:
    while True:
        said = (await kube.get(CRDS, name)).get("status", {}).get("conditions") or ()
        if any(c["type"] == "Established" and c["status"] == "True" for c in said):
            return
        await asyncio.sleep(0.1)


@asynccontextmanager
async def serving(plane: ControlPlane, port: int) -> AsyncIterator[tuple[Kube, Hasty]]:
    """The operator as it is composed, with the rights of its account."""
    clock = Hasty()
    path = plane.folder / "config.yaml"
    path.write_text(CONFIG)
    options = operator.OperatorOptions(
        config=path,
        settings=ManagerSettings(elect=False, webhooks=Listen(port=port), namespace=SPACE),
        controllers=("infra",),
    )
    groups = (f"system:serviceaccounts:{SPACE}", "system:serviceaccounts", "system:authenticated")
    async with (
        connect(plane.kubeconfig_for(ACCOUNT, *groups)) as ours,
        connect(plane.kubeconfig) as admin,
    ):
        runtime = assemble(ours, clock, options.settings, rng=random.Random(1), clusters=Cluster)
        known = config.load(path)
        regions = Regions(known, clock)
        operator.compose(runtime, clock, regions, RegionRegistry(regions, known), options)
        async with running(runtime):
            async with asyncio.timeout(PATIENCE_SECONDS):
                await runtime.manager.wait_ready()
            yield Kube(admin), clock


@asynccontextmanager
async def running(runtime: Runtime) -> AsyncIterator[None]:
    task = asyncio.create_task(runtime.manager.run())
    try:
        yield
    finally:
        runtime.manager.stop()
        await task


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(plane: ControlPlane, port: int) -> AsyncIterator[tuple[Kube, Hasty]]:
    async with serving(plane, port) as made:
        yield made


@pytest.fixture
def kube(stage: tuple[Kube, Hasty]) -> Kube:
    return stage[0]


def tree(kind: str, version: str, name: str) -> Json:
    paused = {"cluster.x-k8s.io/paused": ""}  # nobody is to make guests here
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default", "annotations": paused},
        "spec": SPECS[kind, version],
    }


async def read(kube: Kube, kind: str, version: str, name: str) -> Json:
    return await kube.get(resource_of(kind, version), name, "default")


async def rewrite(kube: Kube, kind: str, version: str, name: str) -> None:
    """Read an object in a version, label it, put it back whole; we may write status meanwhile."""
    while True:
        seen = await read(kube, kind, version, name)
        assert seen["apiVersion"] == f"{GROUP}/{version}"
        seen["metadata"]["labels"] = {"written-in": version}
        try:
            await kube.replace(seen, resource_of(kind, version))
        except WriteConflict:
            continue
        return


def said(obj: Json) -> Json:
    """The spec, without what is empty."""
    return dict(
        json_merge.without_nulls({k: v for k, v in obj["spec"].items() if v not in ({}, [])})
    )


# ---- conversion


async def test_what_capmox_stored_is_listed_in_our_version(kube: Kube) -> None:
    found = await read(kube, "ProxmoxMachine", "v1beta2", "veteran")
    devices = found["spec"]["network"]["networkDevices"]
    assert [d["name"] for d in devices] == ["net0", "net1"]
    assert said(await read(kube, "ProxmoxMachine", "v1alpha1", "veteran")) == OLD_MACHINE


@pytest.mark.parametrize("kind, written", SPECS, ids=str)
async def test_every_version_shows_and_takes_back_what_any_other_wrote(
    kube: Kube, kind: str, written: str
) -> None:
    name = f"{kind.lower()}-{written}"
    made = await kube.create(tree(kind, written, name), resource_of(kind, written))
    assert said(made) == SPECS[kind, written]
    for version in convert.VERSIONS:
        await rewrite(kube, kind, version, name)
        assert said(await read(kube, kind, written, name)) == SPECS[kind, written]
    last = await read(kube, kind, written, name)
    assert last["metadata"]["labels"] == {"written-in": convert.VERSIONS[-1]}
    assert last["metadata"]["uid"] == made["metadata"]["uid"]


async def test_a_list_is_converted_whole(kube: Kube) -> None:
    for number in range(30):
        version = convert.VERSIONS[number % 4]
        spec = OLD_MACHINE if version == "v1alpha1" else {"sourceNode": "pve1"}
        obj = {**tree("ProxmoxMachine", "v1beta2", f"many-{number}"), "spec": spec}
        obj["apiVersion"] = f"{GROUP}/{version}"
        obj["metadata"]["labels"] = {"many": ""}
        await kube.create(obj, resource_of("ProxmoxMachine", version))
    for version in convert.VERSIONS:
        found = await kube.list(resource_of("ProxmoxMachine", version), "default", labels="many")
        assert len(found.items) == 30


SERVED = [k for k in convert.KINDS if k.resource.kind == "ProxmoxMachine"]


@pytest.mark.parametrize("kind", SERVED, ids=lambda kind: kind.resource.version)
async def test_drawn_objects_come_back_as_they_were_written(kube: Kube, kind: type[Object]) -> None:
    for obj in draw(kind):
        await come_back(kube, kind, obj)


def draw(kind: type[Object]) -> list[Json]:
    """The same dozen objects each time, of those that keep the kind's own rules."""
    drawn: list[Json] = []

    @settings(
        max_examples=40,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(objects(kind))
    def take(obj: Json) -> None:
        if not validation.violations(msgspec.convert(obj, kind)):
            drawn.append(obj)

    take()
    return drawn[-12:]


async def come_back(kube: Kube, kind: type[Object], obj: Json) -> None:
    """Written in one version, replaced unchanged in each other: the same as before."""
    obj = {**tree("ProxmoxMachine", "v1beta2", "drawn"), "spec": obj.get("spec", {})}
    obj["apiVersion"] = kind.resource.api_version
    try:
        made = await kube.create(obj, kind.resource)
    except ApiServerAnswer:  # a rule that looks at several fields: judged elsewhere
        return
    for version in convert.VERSIONS:
        await rewrite(kube, "ProxmoxMachine", version, "drawn")
        back = await kube.get(kind.resource, "drawn", "default")
        assert said(back) == said(made)
    await kube.delete(kind.resource, "drawn", "default")


# ---- admission

BAD: list[tuple[str, Json, str]] = [
    (
        "v1beta2",
        {"disks": {"extra": [{"disk": "ide2", "sizeGb": 1}]}, "sourceNode": "pve1"},
        "spec.disks.extra: ide2 is reserved for the bootstrap ISO; use another",
    ),
    (
        "v1alpha1",
        {**OLD_MACHINE, "target": "pve9", "allowedNodes": ["pve1"]},
        "spec.target: pve9 is not in spec.allowedNodes",
    ),
]


@pytest.mark.parametrize("version, spec, sentence", BAD, ids=[b[0] for b in BAD])
async def test_a_bad_object_is_refused_with_our_sentence(
    stage: Any, plane: ControlPlane, version: str, spec: Json, sentence: str
) -> None:
    obj = {**tree("ProxmoxMachine", "v1beta2", "bad"), "spec": spec}
    obj["apiVersion"] = f"{GROUP}/{version}"
    tried = await asyncio.to_thread(
        plane.kubectl, "create", "-f", "-", stdin=json.dumps(obj), check=False
    )
    assert tried.returncode == 1
    assert "validate.infrastructure.moxwell.dev" in tried.stderr
    assert sentence in tried.stderr


async def test_what_became_wrong_may_still_be_labelled_and_go(kube: Kube) -> None:
    """A rule that looks at the past refuses a changed spec, and nothing else."""
    machines = resource_of(version="v1beta2")
    obj = tree("ProxmoxMachineTemplate", "v1beta2", "fixed")
    templates = resource_of("ProxmoxMachineTemplate", "v1beta2")
    await kube.create(obj, templates)
    change = {"spec": {"template": {"spec": {"numCores": 5}}}}
    with pytest.raises(InvalidObject):
        await kube.merge(templates, "fixed", change, "default")
    await kube.merge(templates, "fixed", {"metadata": {"labels": {"a": "b"}}}, "default")
    await kube.delete(templates, "fixed", "default")
    assert await kube.find(machines, "fixed", "default") is None


# ---- trust


async def bundles(kube: Kube) -> set[str]:
    """Every bundle that is announced; one, if all agree."""
    hook = await kube.get(VALIDATING, "moxwell-validating-webhook-configuration")
    found = {w["clientConfig"].get("caBundle", "") for w in hook["webhooks"]}
    for name in {k.resource.group_resource for k in convert.KINDS}:
        tree = await kube.get(CRDS, name)
        found.add(tree["spec"]["conversion"]["webhook"]["clientConfig"].get("caBundle", ""))
    return found


async def kept(kube: Kube) -> ServingCertificates:
    found = read_secret(await kube.get(SECRETS, "moxwell-webhook-cert", SPACE))
    assert found is not None
    return found


def text(bundle: bytes) -> str:
    return base64.b64encode(bundle).decode()


async def until_told(kube: Kube, clock: Hasty, bundle: bytes) -> None:
    """Poke whoever looks by the way until the bundle is everywhere."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await bundles(kube) != {text(bundle)}:
            clock.poke()
            await asyncio.sleep(0.1)


@asynccontextmanager
async def asking(kube: Kube) -> AsyncIterator[list[str]]:
    """Somebody who reads and writes old versions all the while; yields what went wrong."""
    wrong: list[str] = []
    done = 0

    async def ask() -> None:
        nonlocal done
        while True:
            try:
                await read(kube, "ProxmoxMachine", "v1alpha1", "veteran")
                patch = {"metadata": {"annotations": {"asked": str(done)}}}
                await kube.merge(resource_of(version="v1alpha2"), "veteran", patch, "default")
                done += 1
            except ApiServerAnswer as error:
                wrong.append(str(error))
            await asyncio.sleep(0.02)

    task = asyncio.create_task(ask())
    try:
        yield wrong
        seen = done
        while done < seen + 20 and not wrong:
            await asyncio.sleep(0.05)
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.mark.parametrize(
    "authority_days, serving_days, renewed",
    [(240, 240, False), (2430, 10, True)],
    ids=["the certificate grows old", "the authority grows old"],
)
async def test_a_certificate_is_exchanged_while_conversions_go_on(
    stage: tuple[Kube, Hasty], port: int, authority_days: int, serving_days: int, renewed: bool
) -> None:
    kube, clock = stage
    clock.ahead = timedelta(days=-10)
    before = await plant(kube, clock.now(), authority_days, serving_days)
    await until_served(kube, clock, before.bundle)
    async with asking(kube) as wrong, asyncio.timeout(PATIENCE_SECONDS):
        clock.ahead = timedelta()
        while (after := await kept(kube)).serving == before.serving:
            clock.poke()
            await asyncio.sleep(0.1)
        while await served(port) != after.serving.certificate:  # used after the announcement
            await asyncio.sleep(0.1)
        assert await bundles(kube) == {text(after.bundle)}
    assert wrong == []
    assert (after.ca != before.ca) is renewed
    assert before.ca.certificate in after.bundle


async def served(port: int) -> bytes:
    """The certificate a new connection is shown."""
    shown = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))
    return shown.encode()


async def plant(
    kube: Kube, now: datetime, authority_days: int, serving_days: int
) -> ServingCertificates:
    """Certificates that are as old as that, as a Secret."""
    authority = certificates.create_ca("planted", now - timedelta(days=authority_days))
    names = certs_names(await kept(kube))
    serving = serving_certificates.issue(authority, names, now - timedelta(days=serving_days))
    made = ServingCertificates(authority, serving, authority.certificate)
    data = write_secret("moxwell-webhook-cert", SPACE, made)["data"]
    await kube.merge(SECRETS, "moxwell-webhook-cert", {"data": data}, SPACE)
    return made


def certs_names(now: ServingCertificates) -> list[str]:
    read = x509.load_pem_x509_certificate(now.serving.certificate)
    found = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in found]


async def until_served(kube: Kube, clock: Hasty, bundle: bytes) -> None:
    """Until the bundle is everywhere, and the apiserver has heard of it."""
    await until_told(kube, clock, bundle)
    good = 0
    while good < 5:
        try:
            await read(kube, "ProxmoxMachine", "v1alpha1", "veteran")
            obj = tree("ProxmoxMachine", "v1alpha1", "try")
            await kube.create(obj, resource_of(), dry_run=True)
            good += 1
        except ApiServerAnswer:
            good = 0
        await asyncio.sleep(0.1)


# ---- claims and grants


CLAIM = {"host": "pve1", "uuid": "99999999-1111-4222-8333-444444444444"}
RBAC = "rbac.authorization.k8s.io"


def rights(kind: str, user: str) -> list[Json]:
    """All rights of a user: in the namespace default (Role) or everywhere (ClusterRole)."""
    meta = {"name": user} | ({"namespace": "default"} if kind == "Role" else {})
    head = {"apiVersion": f"{RBAC}/v1", "metadata": meta}
    every = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    return [
        {**head, "kind": kind, "rules": every},
        {
            **head,
            "kind": f"{kind}Binding",
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": user},
            "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
        },
    ]


async def until_denied(kube: Kube, obj: Json) -> None:
    """Until the policy is in force; the apiserver compiles it some time after it is created."""
    found = ""
    while not found:
        await asyncio.sleep(0.1)
        try:
            await kube.create(obj, resource_of(version="v1beta2"), dry_run=True)
        except ApiServerAnswer as answer:
            found = str(answer)
    assert "spec.claim is written by the controller" in found


async def test_only_who_may_claim_writes_claims(
    stage: tuple[Kube, Hasty], plane: ControlPlane
) -> None:
    admin, _ = stage
    machines = resource_of(version="v1beta2")
    for manifest in [*rights("Role", "tina"), *rights("ClusterRole", "olga")]:
        await admin.apply(manifest, of(manifest), force=True)
    async with (
        connect(plane.kubeconfig_for("tina", "system:authenticated")) as one,
        connect(plane.kubeconfig_for("olga", "system:authenticated")) as two,
        connect(plane.kubeconfig_for(ACCOUNT, "system:authenticated")) as three,
    ):
        tina, olga, ours = Kube(one), Kube(two), Kube(three)
        with_claim = tree("ProxmoxMachine", "v1beta2", "claimed")
        with_claim["spec"] = {**with_claim["spec"], "claim": CLAIM}
        await until_denied(tina, with_claim)
        await tina.create(tree("ProxmoxMachine", "v1beta2", "claimed"), machines)
        change = {"spec": {"claim": CLAIM}}
        with pytest.raises(ApiServerAnswer, match="written by the controller"):
            await tina.merge(machines, "claimed", change, "default")
        await ours.merge(machines, "claimed", change, "default")
        await tina.merge(machines, "claimed", {"metadata": {"labels": {"a": "b"}}}, "default")
        with pytest.raises(ApiServerAnswer, match="written by the controller"):
            await tina.merge(machines, "claimed", {"spec": {"claim": None}}, "default")
        await tina.delete(machines, "claimed", "default")
        await olga.create({**with_claim, "metadata": {**with_claim["metadata"], "name": "moved"}},
                          machines)  # fmt: skip
        await olga.delete(machines, "moved", "default")


async def test_a_secret_of_another_namespace_needs_a_grant(stage: tuple[Kube, Hasty]) -> None:
    kube, clock = stage
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vault"}}
    await kube.apply(space, of(space), force=True)
    values = {"url": "https://127.0.0.1:1", "token": "a@pve!b", "secret": "c"}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "namespace": "vault"},
        "stringData": values,
    }
    await kube.create(secret, of(secret))
    cluster: Json = {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Cluster",
        "metadata": {"name": "granted", "namespace": "default"},
        "spec": {
            "infrastructureRef": {"apiGroup": GROUP, "kind": "ProxmoxCluster", "name": "granted"}
        },
    }
    made = await kube.create(cluster, of(cluster))
    owner = {
        "apiVersion": cluster["apiVersion"],
        "kind": "Cluster",
        "name": "granted",
        "uid": made["metadata"]["uid"],
    }
    body = tree("ProxmoxCluster", "v1beta2", "granted")
    body["metadata"] = {"name": "granted", "namespace": "default", "ownerReferences": [owner]}
    body["spec"] = {**CLUSTER, "credentialsRef": {"name": "s", "namespace": "vault"}}
    await kube.create(body, resource_of("ProxmoxCluster", "v1beta2"))
    await until_reason(kube, clock, "RefNotPermitted", present=True)
    held = await kube.get(SECRETS, "s", "vault")
    assert not held["metadata"].get("finalizers")
    source = {"group": GROUP, "kind": "ProxmoxCluster", "namespace": "default"}
    grant = {
        "apiVersion": "gateway.networking.k8s.io/v1beta1",
        "kind": "ReferenceGrant",
        "metadata": {"name": "g", "namespace": "vault"},
        "spec": {"from": [source], "to": [{"group": "", "kind": "Secret", "name": "s"}]},
    }
    await kube.create(grant, of(grant))
    await until_reason(kube, clock, "RefNotPermitted", present=False)


async def until_reason(kube: Kube, clock: Hasty, reason: str, *, present: bool) -> None:
    while True:
        found = await read(kube, "ProxmoxCluster", "v1beta2", "granted")
        conditions = found.get("status", {}).get("conditions") or []
        if conditions and any(c["reason"] == reason for c in conditions) is present:
            return
        clock.poke()
        await asyncio.sleep(0.2)


async def test_a_bundle_that_somebody_removes_comes_back(stage: tuple[Kube, Hasty]) -> None:
    kube, clock = stage
    path = "/spec/conversion/webhook/clientConfig/caBundle"
    await kube.json_patch(CRDS, MACHINES, [{"op": "remove", "path": path}])
    await until_served(kube, clock, (await kept(kube)).bundle)


async def test_a_deleted_secret_means_a_new_authority(stage: tuple[Kube, Hasty]) -> None:
    kube, clock = stage
    before = await kept(kube)
    await kube.delete(SECRETS, "moxwell-webhook-cert", SPACE)
    while await kube.find(SECRETS, "moxwell-webhook-cert", SPACE) is None:
        clock.poke()
        await asyncio.sleep(0.05)
    after = await kept(kube)
    assert after.ca != before.ca
    await until_served(kube, clock, after.bundle)


async def test_the_command_prints_what_the_release_installs(plane: ControlPlane) -> None:
    """``moxwell render crds`` is taken as it is, and names the webhook; so nothing can be lost."""
    command = [sys.executable, "-m", "moxwell", "render", "crds"]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=True)
    printed = {c["metadata"]["name"]: c for c in yaml.safe_load_all(done.stdout)}
    released = {c["metadata"]["name"]: c for c in crd.crds(convert.KINDS, HOOK)}
    assert {name: printed[name] for name in released} == released
    said = await asyncio.to_thread(
        plane.kubectl, "replace", "--dry-run=server", "-f", "-", stdin=done.stdout.decode()
    )
    assert said.stdout.count("(server dry run)") == len(printed)
