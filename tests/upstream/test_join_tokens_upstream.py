"""
Join tokens of the autoscaler on a genuine API server: kubeadm accepts the signed cluster-info, the
token joins as its own node only, and a revoked one is worth nothing.
"""

import asyncio
import base64
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
import yaml

from attacks.test_join_tokens import csr
from envtest import control_plane, locate
from envtest.control_plane import PROGRAMS, ControlPlane
from envtest.plugin import require
from moxwell.api.core.resources import ConfigMap, Secret
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.proxmox import ProxmoxNodeClass
from moxwell.bootstrap import join_tokens, node_templates
from moxwell.clock import SystemClock
from moxwell.controllers.karpenter.proxmox import join_approver
from moxwell.controllers.karpenter.proxmox.instance_record import InstanceRecord
from moxwell.controllers.karpenter.proxmox.join_approver import REQUESTS, JoinApprover
from moxwell.controllers.karpenter.proxmox.node_bootstrap import NodeBootstrap
from moxwell.kube import kubeconfig
from moxwell.kube.client import Kube
from moxwell.kube.errors import ApiServerAnswer
from moxwell.kube.transport import KubeTransport
from moxwell.runtime.manager import assemble
from moxwell.runtime.reconciler import Controller
from moxwell.runtime.settings import ManagerSettings
from moxwell.testing.karpenter_environment import node_claim

pytestmark = [pytest.mark.genuine, pytest.mark.slow]
PATIENCE_SECONDS = 240.0
NODE = "blue-abc-0123456789"
# what the chart binds to the group of the tokens, and what kubeadm reads while it joins
ROLES = f"""
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: moxwell-join-nodes}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:node-bootstrapper}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "{join_tokens.GROUP}"}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: cluster-info, namespace: kube-public}}
rules: [{{apiGroups: [""], resources: [configmaps], resourceNames: [cluster-info], verbs: [get]}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: cluster-info, namespace: kube-public}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: cluster-info}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:anonymous"}}]
"""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    require(*PROGRAMS, "kube-controller-manager", "kubectl", "kubeadm")
    with ControlPlane(tmp_path_factory.mktemp("plane")) as made:
        made.start("--enable-bootstrap-token-auth=true")
        made.start_controller_manager("--controllers=*,bootstrapsigner,tokencleaner")
        control_plane.wait_default_account(made)
        made.kubectl("apply", "-f", "-", stdin=ROLES)
        yield made


@asynccontextmanager
async def client(path: Path) -> AsyncIterator[Kube]:
    access = kubeconfig.load([path]).access(SystemClock(), {})
    async with KubeTransport(access) as handler:
        yield Kube(handler)


@asynccontextmanager
async def approver(plane: ControlPlane) -> AsyncIterator[Kube]:
    """The controller ``karpenter.join`` on the cluster."""
    access = kubeconfig.load([Path(plane.kubeconfig)]).access(SystemClock(), {})
    async with KubeTransport(access) as handler:
        runtime = assemble(handler, SystemClock(), ManagerSettings(elect=False))
        approving = JoinApprover(runtime.kube)
        runtime.manager.add(Controller(name=join_approver.NAME, reconciler=approving))
        task = asyncio.create_task(runtime.manager.run())
        try:
            await runtime.manager.wait_ready()
            yield Kube(handler)
        finally:
            runtime.manager.stop()
            await task


def cluster_info(plane: ControlPlane) -> dict[str, Any]:
    """The ConfigMap that kubeadm reads without credentials."""
    found = yaml.safe_load(Path(plane.kubeconfig).read_text())
    cluster = {"clusters": found["clusters"][:1], "apiVersion": "v1", "kind": "Config"}
    cluster["clusters"][0]["name"] = ""
    inner = cluster["clusters"][0]["cluster"]
    if path := inner.pop("certificate-authority", None):
        inner["certificate-authority-data"] = base64.b64encode(Path(path).read_bytes()).decode()
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "cluster-info", "namespace": "kube-public"},
        "data": {"kubeconfig": yaml.safe_dump(cluster)},
    }


async def new_token(kube: Kube, uid: str) -> str:
    """The token in the bootstrap data of a launch."""
    body = node_claim("claim", {"cpu": "1"})
    body["metadata"]["uid"] = uid
    spec = {"instanceTemplateRef": {"kind": "ProxmoxTemplate", "name": "t"}}
    node_class = {"metadata": {"name": "default"}, "spec": spec}
    record = {"instanceType": "t1", "nodeClass": "default", "classHash": "", "region": "north"}
    data = await NodeBootstrap(kube, SystemClock()).data(
        NODE,
        msgspec.convert(body, NodeClaim),
        msgspec.convert(node_class, ProxmoxNodeClass),
        msgspec.convert(record | {"host": "h", "template": 1, "templateHost": "h"}, InstanceRecord),
        "v1.36.3",
    )
    return node_templates.decode(data["value"].encode()).token


async def until(what: str, check: Any) -> Any:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (found := await check()):
            await asyncio.sleep(0.2)
    assert found, what
    return found


def join(plane: ControlPlane, token: str) -> str:
    """What the genuine kubeadm says when it discovers the cluster with a token."""
    command = [
        str(locate.program("kubeadm")), "join", "phase", "preflight", urlsplit(plane.url).netloc,
        "--token", token, "--discovery-token-unsafe-skip-ca-verification",
        "--ignore-preflight-errors=all", "--v=2",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return done.stdout + done.stderr


def with_token(plane: ControlPlane, token: str) -> Path:
    """A kubeconfig with a token."""
    found = yaml.safe_load(Path(plane.kubeconfig).read_text())
    found["users"] = [{"name": found["users"][0]["name"], "user": {"token": token}}]
    path = plane.folder / "token.kubeconfig"
    path.write_text(yaml.safe_dump(found))
    return path


async def ask(plane: ControlPlane, token: str, name: str, node: str) -> None:
    """Request a kubelet certificate with a token."""
    body = csr(name, node)
    body["spec"]["usages"] = ["digital signature", "client auth"]  # what the signer requires
    async with client(with_token(plane, token)) as requester:
        await requester.create(body, REQUESTS)


async def test_a_token_is_signed_bound_to_its_node_and_revoked(plane: ControlPlane) -> None:
    async with approver(plane) as kube:
        await kube.create(cluster_info(plane), ConfigMap.resource)
        token = await new_token(kube, "11111111-2222-3333-4444-555555555555")

        async def signed() -> bool:
            info = await kube.get(ConfigMap, "cluster-info", "kube-public")
            return f"jws-kubeconfig-{token.partition('.')[0]}" in info.data

        await until("the cluster-info is signed for the token", signed)
        said = await asyncio.to_thread(join, plane, token)
        assert "Cluster info signature and contents are valid" in said, said
        await ask(plane, token, "stolen", "control-plane-1")
        await ask(plane, token, "own", NODE)

        async def decided(name: str) -> dict[str, Any] | None:
            status = (await kube.get(REQUESTS, name)).get("status") or {}
            conditions = {c["type"] for c in status.get("conditions") or ()}
            return status if "Denied" in conditions or "certificate" in status else None

        stolen = await until("stolen", lambda: decided("stolen"))
        assert [c["type"] for c in stolen["conditions"]] == ["Denied"]
        assert f"for the node {NODE}, not for control-plane-1" in stolen["conditions"][0]["message"]
        own = await until("own", lambda: decided("own"))
        assert b"BEGIN CERTIFICATE" in base64.b64decode(own["certificate"])
        await NodeBootstrap(kube, SystemClock()).revoke("11111111-2222-3333-4444-555555555555")
        assert not (await kube.list(Secret, "kube-system", labels=join_tokens.CLAIM_LABEL)).items

        async def refused() -> bool:
            try:
                await ask(plane, token, "late", NODE)
            except ApiServerAnswer as error:
                return error.status.code == 401
            await kube.delete(REQUESTS, "late")
            return False  # the authenticator's cache has it for some seconds

        await until("the revoked token is refused", refused)
