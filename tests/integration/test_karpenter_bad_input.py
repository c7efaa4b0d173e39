"""Mistakes in a node class and its Secrets: a condition with the field, no launch, nothing made."""

import base64
from dataclasses import dataclass, field
from typing import Any

import pytest

from moxwell.api.capi.core import Machine
from moxwell.api.core.resources import Secret
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.karpenter.proxmox import ProxmoxNodeClass
from moxwell.api.karpenter.proxmox_templates import ProxmoxTemplate
from moxwell.bootstrap import join_tokens
from moxwell.controllers.karpenter.provider import LaunchFailure
from moxwell.testing.karpenter_environment import KarpenterEnvironment, karpenter_environment
from moxwell.testing.loop import run_virtual
from moxwell.testing.two_regions import WORLD

REF = {"name": "templates", "namespace": "kube-system"}
CDROM = {"metadataOptions": {"type": "cdrom", "templatesRef": REF}}
VALUES = {"metadataOptions": {"type": "cdrom", "templatesRef": REF, "valuesRef": {"name": "none"}}}
GOOD = {"user-data": "#cloud-config\n"}


@dataclass(frozen=True)
class Mistake:
    """A change of the node class or its Secret, and what its condition says."""

    name: str
    spec: dict[str, Any]
    condition: str
    reason: str
    words: tuple[str, ...]  # the field, and what to do
    secret: dict[str, str] | None = None
    remedy: dict[str, Any] = field(default_factory=dict)  # the spec that is right again


MISTAKES = (
    Mistake(
        "region", {"region": "west"}, "InfrastructureReady", "RegionNotFound",
        ("spec.region", "'west'", "north, south", "set one of them"), remedy={"region": None},
    ),
    Mistake(
        "pool", {"resourcePool": "nobody"}, "InfrastructureReady", "PoolNotFound",
        ("spec.resourcePool", "'nobody'", "create it in Proxmox"), remedy={"resourcePool": None},
    ),
    Mistake(
        "storage", {"bootDevice": {"storage": "nowhere"}}, "InfrastructureReady", "StorageNotFound",
        ("spec.bootDevice.storage", "'nowhere'", "name another one"),
        remedy={"bootDevice": {"storage": None}},
    ),
    Mistake(
        "storage without images", {"bootDevice": {"storage": "local"}}, "InfrastructureReady",
        "StorageNotFound", ("spec.bootDevice.storage", "content type images"),
        remedy={"bootDevice": {"storage": None}},
    ),
    Mistake(
        "group", {"securityGroups": [{"name": "nobody"}]}, "InfrastructureReady",
        "SecurityGroupNotFound",
        ("spec.securityGroups[0].name", "'nobody'", "create it in the datacenter's firewall"),
        remedy={"securityGroups": None},
    ),
    Mistake(
        "template", {"instanceTemplateRef": {"name": "none"}}, "InstanceTemplateReady",
        "TemplateNotFound", ("spec.instanceTemplateRef", "'none'", "create it"),
        remedy={"instanceTemplateRef": {"name": "ubuntu"}},
    ),
    Mistake(
        "no Secret named", {"metadataOptions": {"type": "cdrom"}}, "InstanceMetadataOptionsReady",
        "SecretNotFound", ("spec.metadataOptions.templatesRef", "name it"),
        remedy={"metadataOptions": None},
    ),
    Mistake(
        "no Secret", CDROM, "InstanceMetadataOptionsReady", "SecretNotFound",
        ("spec.metadataOptions.templatesRef", "kube-system/templates", "create it"),
        remedy={"metadataOptions": None},
    ),
    Mistake(
        "no Secret of values", VALUES, "InstanceMetadataOptionsReady", "SecretNotFound",
        ("spec.metadataOptions.valuesRef", "kube-system/none", "create it"), GOOD,
        remedy={"metadataOptions": None},
    ),
    Mistake(
        "a Secret without its keys", CDROM, "InstanceMetadataOptionsReady", "SecretNotFound",
        ("spec.metadataOptions.templatesRef", "user-data, meta-data", "add one"), {"notes": "x"},
        remedy={"metadataOptions": None},
    ),
    Mistake(
        "a template that does not parse", CDROM, "InstanceMetadataOptionsReady", "InvalidTemplate",
        ("spec.metadataOptions.templatesRef", "key user-data: line 2, column 10", "correct"),
        {"user-data": "#cloud-config\na: {{ if }}\n"}, remedy={"metadataOptions": None},
    ),
    Mistake(
        "a network template that does not parse", CDROM, "InstanceMetadataOptionsReady",
        "InvalidTemplate", ("key network-config: line 3, column", "correct"),
        {**GOOD, "network-config": "version: 2\n\n{{ end }}"}, remedy={"metadataOptions": None},
    ),
    Mistake(
        "a function that does not exist", CDROM, "InstanceMetadataOptionsReady", "InvalidTemplate",
        ("key user-data: line 1, column", "nope"), {"user-data": "{{ nope . }}"},
        remedy={"metadataOptions": None},
    ),
)  # fmt: skip


async def write_secret(env: KarpenterEnvironment, data: dict[str, str] | None) -> None:
    if await env.kube.find(Secret, "templates", "kube-system") is not None:
        await env.kube.delete(Secret, "templates", "kube-system")
    if data is not None:
        encoded = {k: base64.b64encode(v.encode()).decode() for k, v in data.items()}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": REF, "data": encoded}
        await env.kube.create(body, Secret.resource)


async def condition_is(env: KarpenterEnvironment, type_: str, status: str, reason: str) -> str:
    async def reported() -> str | None:
        for found in (await env.node_class()).status.conditions:
            if (found.type, found.status, found.reason) == (type_, status, reason):
                return found.message or "-"
        return None

    message: str = await env.stage.until(f"{type_} is {reason}", reported)
    return message


async def refused(env: KarpenterEnvironment, mistake: Mistake) -> None:
    """The mistake is named, a launch fails at once, and nothing is made."""
    before = env.stage.contents()
    await write_secret(env, mistake.secret)
    await env.kube.merge(ProxmoxNodeClass, "default", {"spec": mistake.spec})
    message = await condition_is(env, mistake.condition, "False", mistake.reason)
    for word in mistake.words:
        assert word in message, (mistake.name, word, message)
    await condition_is(env, "Ready", "False", mistake.reason)
    claim = await env.claim(mistake.name.lower().replace(" ", "-"))
    await env.provider.launch(claim)
    failed = await env.provider.instance(claim)
    assert failed is not None, mistake.name
    assert failed.failure is LaunchFailure.NODE_CLASS_NOT_READY, mistake.name
    assert failed.message, mistake.name
    for kind in (Machine, ProxmoxMachine):
        assert not (await env.kube.list(kind)).items, mistake.name
    tokens = await env.kube.list(Secret, "kube-system", labels=join_tokens.CLAIM_LABEL)
    assert not tokens.items, mistake.name
    assert env.stage.contents() == before, mistake.name
    await env.kube.merge(ProxmoxNodeClass, "default", {"spec": mistake.remedy})
    await condition_is(env, "Ready", "True", "Ready")


TEMPLATE = """
apiVersion: karpenter.proxmox.sinextra.dev/v1alpha1
kind: ProxmoxTemplate
metadata: {name: noble}
spec:
  region: north
  sourceImage: %s
  storageIDs: [%s]
  network: [{bridge: vmbr0}]
"""
IMPORTS = WORLD.replace("[iso, vztmpl]", "[iso, vztmpl, import, images]")
IMAGE = "https://images.example/noble.img"
ZEROS = f"{{url: '{IMAGE}', checksum: '{'0' * 64}', checksumType: sha256}}"
TEMPLATES = [
    pytest.param(
        "{url: 'https://127.0.0.1/a.img'}", "local, lvm", "ImageUnavailable",
        ("sourceImage.url", "127.0.0.1"), id="the image is missing",
    ),
    pytest.param(
        ZEROS, "local, lvm", "ChecksumMismatch", ("sourceImage.checksum", "0" * 64),
        id="the checksum differs",
    ),
    pytest.param(
        f"{{url: '{IMAGE}'}}", "ceph", "TemplateStorageMissing", ("storageIDs", "import"),
        id="the storage takes no imports",
    ),
]  # fmt: skip


@pytest.mark.parametrize("image, storages, reason, words", TEMPLATES)
def test_a_template_that_cannot_be_made_is_a_condition_and_launches_nothing(
    image: str, storages: str, reason: str, words: tuple[str, ...]
) -> None:
    async def story() -> None:
        async with karpenter_environment(world=IMPORTS, trusted=True) as env:
            before = env.stage.contents()
            await env.stage.apply(TEMPLATE % (image, storages))

            async def message() -> str | None:
                found = await env.kube.get(ProxmoxTemplate, "noble")
                wrong = (c for c in found.status.conditions if c.type == "Ready")
                return next((c.message for c in wrong if c.reason == reason), None)

            said: str = await env.stage.until(f"the template is {reason}", message)
            assert all(word in said for word in words), said
            assert env.stage.contents() == before  # nothing half made
            ref = {"instanceTemplateRef": {"kind": "ProxmoxTemplate", "name": "noble"}}
            mistake = Mistake(
                "template", ref, "InstanceTemplateReady", "TemplateNotFound",
                ("spec.instanceTemplateRef", "'noble'", "its condition Ready says why"),
                remedy={"instanceTemplateRef": {"kind": "ProxmoxUnmanagedTemplate",
                                                "name": "ubuntu"}},
            )  # fmt: skip
            await refused(env, mistake)
            await env.kube.delete(ProxmoxTemplate, "noble")

            async def gone() -> bool:
                return await env.kube.find(ProxmoxTemplate, "noble") is None

            await env.stage.until("the template is deleted", gone)
            assert env.stage.contents() == before

    run_virtual(story())


def test_each_mistake_of_a_node_class_is_a_condition_and_makes_nothing() -> None:
    async def story() -> None:
        async with karpenter_environment(trusted=True) as env:
            for mistake in MISTAKES:
                await refused(env, mistake)

    run_virtual(story())
