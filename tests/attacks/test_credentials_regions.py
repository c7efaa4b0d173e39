"""A region name, a Secret of another namespace or a chosen URL gives no access to credentials."""

import asyncio
import base64
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moxwell.api.gateway import ReferenceGrant
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.kinds import Resource
from moxwell.controllers.infra.cluster.credentials import grants_reference
from moxwell.controllers.infra.policy import HostNotAllowed, InfraPolicy
from moxwell.controllers.infra.region_registry import RegionRegistry
from moxwell.errors import Invalid
from moxwell.pve import errors
from moxwell.pve.config import RegionConfig, TokenAuth
from moxwell.pve.regions import Regions, UnknownRegion
from moxwell.pve.values import SecretValue
from moxwell.testing.loop import LoopClock, run_virtual
from moxwell.testing.machine_objects import apply_cluster
from moxwell.testing.scripted_transport import ScriptedTransport
from moxwell.testing.two_regions import TOKEN, TOKEN_SECRET, TwoRegions, running

SECRETS = Resource("", "v1", "secrets", "Secret")
SPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
LEAKED = "internal answer: password=hunter2"


def config(name: str, token: str) -> RegionConfig:
    auth = TokenAuth(f"u@pve!{token}", SecretValue(token))
    return RegionConfig(region=name, urls=(f"https://{token}.example:8006",), auth=auth)


def make(*shared: RegionConfig) -> tuple[Regions, RegionRegistry]:
    def silent(*_: object) -> Any:
        return []

    regions = Regions(shared, LoopClock(), connect=lambda c: ScriptedTransport(silent))
    return regions, RegionRegistry(regions, shared)


# ---- names


async def test_two_clusters_with_the_same_region_name_use_their_own_tokens() -> None:
    regions, registry = make(config("north", "operator"))
    registry.add("a/c", [config("prod", "token-a")])
    registry.add("b/c", [config("prod", "token-b")])
    for owner, token in (("a/c", "token-a"), ("b/c", "token-b")):
        assert registry.scope(owner)["prod"].config == config("prod", token)
    assert len({region.key for region in regions.all()}) == 3
    for scope in (regions, registry.scope("c/c"), registry.scope("")):
        with pytest.raises(UnknownRegion):
            scope["prod"]
        assert list(scope) == ["north"]
    registry.remove("a/c")
    assert registry.scope("a/c").find("prod") is None
    assert registry.scope("b/c")["prod"].config == config("prod", "token-b")


owners = st.sampled_from(["a/c", "b/c", "b/d", "a/c:x"])
region_names = st.sampled_from(["prod", "test", "x:prod", "north"])


@given(
    added=st.dictionaries(owners, st.sets(region_names, min_size=1)),
    asking=owners,
    name=region_names,
)
def test_a_scope_has_only_configured_and_own_regions(
    added: dict[str, set[str]], asking: str, name: str
) -> None:
    async def main() -> None:
        _, registry = make(config("north", "operator"))
        for owner, names in added.items():
            configs = [config(n, f"{owner}-{n}") for n in sorted(names - {"north"})]
            registry.add(owner, configs)
        found = registry.scope(asking).find(name)
        if name == "north":
            assert found is not None
            assert found.config == config("north", "operator")
        elif name in added.get(asking, ()):
            assert found is not None
            assert found.config == config(name, f"{asking}-{name}")
        else:
            assert found is None

    run_virtual(main())


# ---- grants


def grant(sources: list[dict[str, str]], to: list[dict[str, str]]) -> ReferenceGrant:
    return msgspec.convert({"spec": {"from": sources, "to": to}}, ReferenceGrant)


FROM = {"group": "infrastructure.cluster.x-k8s.io", "kind": "ProxmoxCluster", "namespace": "team"}
TO = {"group": "", "kind": "Secret"}


@pytest.mark.parametrize(
    ("given_grant", "permitted"),
    [
        pytest.param(grant([FROM], [TO]), True, id="all Secrets"),
        pytest.param(grant([FROM], [{**TO, "name": "s"}]), True, id="this Secret"),
        pytest.param(grant([FROM], [{**TO, "name": "t"}]), False, id="another Secret"),
        pytest.param(grant([FROM], [{**TO, "kind": "ConfigMap"}]), False, id="another kind"),
        pytest.param(grant([FROM], [{**TO, "group": "x"}]), False, id="another group"),
        pytest.param(grant([{**FROM, "namespace": "x"}], [TO]), False, id="another namespace"),
        pytest.param(grant([{**FROM, "kind": "Gateway"}], [TO]), False, id="from another kind"),
        pytest.param(grant([{**FROM, "group": ""}], [TO]), False, id="from another group"),
        pytest.param(grant([], [TO]), False, id="from nobody"),
        pytest.param(grant([FROM], []), False, id="to nothing"),
    ],
)
def test_what_a_grant_permits(given_grant: ReferenceGrant, permitted: bool) -> None:
    body = {"metadata": {"name": "c", "namespace": "team"}, "spec": {}}
    cluster = msgspec.convert(body, ProxmoxCluster)
    assert grants_reference(given_grant, cluster, "s") is permitted


async def _foreign_secret(env: TwoRegions) -> None:
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vault"}}
    await env.kube.create(space, SPACES)
    data = {"url": "https://south.x:8006", "token": TOKEN, "secret": TOKEN_SECRET}
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "namespace": "vault"},
        "data": {k: base64.b64encode(v.encode()).decode() for k, v in data.items()},
    }
    await env.kube.create(body, SECRETS)


def _reasons(cluster: ProxmoxCluster) -> set[str]:
    return {condition.reason for condition in cluster.status.conditions}


def test_a_secret_of_another_namespace_needs_a_grant() -> None:
    async def main() -> None:
        async with running("north") as (env, program):
            await _foreign_secret(env)
            ref = {"name": "s", "namespace": "vault"}
            await apply_cluster(env, region=None, credentialsRef=ref)
            await asyncio.sleep(30)
            cluster = await env.kube.get(ProxmoxCluster, "c", "default")
            assert "RefNotPermitted" in _reasons(cluster)
            assert [r.owner for r in program.regions.all() if r.owner] == []
            secret = await env.kube.get(SECRETS, "s", "vault")
            assert not secret["metadata"].get("finalizers")
            source = {**FROM, "namespace": "default"}
            allowed = msgspec.convert(
                {
                    "metadata": {"name": "g", "namespace": "vault"},
                    "spec": {"from": [source], "to": [TO]},
                },
                ReferenceGrant,
            )
            await env.kube.create(allowed)
            await asyncio.sleep(60)
            assert program.regions.scope("default/c").find("vault.s") is not None

    run_virtual(main())


# ---- hosts and errors


@pytest.mark.parametrize(
    ("url", "patterns", "allowed"),
    [
        ("https://pve.example:8006", (), True),
        ("https://pve.example:8006", ("pve.example",), True),
        ("https://pve.example:8006", ("*.example",), True),
        ("https://PVE.example:8006", ("pve.example:8006",), True),
        ("https://pve.example:8006", ("pve.example:443",), False),
        ("https://pve.example", ("pve.example:443",), True),
        ("https://evil.org/pve.example:8006", ("pve.example:8006",), False),
        ("https://pve.example@169.254.169.254", ("pve.example",), False),
        ("https://169.254.169.254", ("10.*", "*.example"), False),
        ("https://[::1]:8006", ("[::1]:8006",), True),
        ("https://[::1]:8006", ("::1",), True),
    ],
)
def test_which_hosts_credentials_may_name(
    url: str, patterns: tuple[str, ...], allowed: bool
) -> None:
    policy = InfraPolicy(credential_hosts=patterns)
    if allowed:
        policy.refuse_urls((url,))
    else:
        with pytest.raises(HostNotAllowed):
            policy.refuse_urls((url,))


def test_the_policy_is_read_from_the_configuration() -> None:
    text = (
        "features:\n  adoptGuests: ['a/*']\n  credentialHosts: ['*.example']\n"
        "  crossNamespaceCredentials: true\n"
    )
    assert InfraPolicy.parse(text) == InfraPolicy(("a/*",), ("*.example",), True)
    assert InfraPolicy.parse("clusters: []") == InfraPolicy()
    for wrong in ("adoptGuests: all", "adoptGuests: ['everything']", "credentialHosts: [1]"):
        with pytest.raises(Invalid):
            InfraPolicy.parse(f"features: {{{wrong}}}")


@pytest.mark.parametrize("owner", ["a/c", ""])
async def test_an_error_of_a_chosen_url_is_reduced_to_its_class(owner: str) -> None:
    def refuse(*_: object) -> Any:
        return errors.PermissionDenied(LEAKED, status=403, where="GET /version")

    def connect(given_config: RegionConfig) -> ScriptedTransport:
        return ScriptedTransport(refuse)

    regions = Regions([config("r1", "operator")], LoopClock(), connect=connect)
    regions.reload([config("r1", "operator")], {"a/c": [config("r1", "t")]})
    region = regions.scope(owner)["r1"]
    with pytest.raises(errors.PermissionDenied) as caught:
        await region.reader.version()
    assert (LEAKED in str(caught.value)) is (owner == "")
    assert caught.value.status == 403
    await region.inventory.refresh()
    assert (LEAKED in region.problem) is (owner == "")
