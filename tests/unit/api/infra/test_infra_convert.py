"""
Conversions of the infrastructure kinds: round trips are lossless and published manifests decode.
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moxwell.api.conversion import HUB_DATA
from moxwell.api.infra import cluster, machine, v1alpha1, v1alpha2, v1beta1
from moxwell.api.infra.convert import KINDS, VERSIONS, convert
from moxwell.api.infra.machine import GROUP, HUB
from moxwell.api.kinds import Object, as_dict
from moxwell.errors import MoxwellError

Json = dict[str, Any]
SHARED = Path(__file__).parents[5] / "shared"
VARIABLES = {
    "ALLOWED_NODES": "[pve1]",
    "BOOT_VOLUME_DEVICE": "scsi0",
    "BRIDGE": "vmbr0",
    "CLUSTER_NAME": "mox",
    "CONTROL_PLANE_ENDPOINT_IP": "10.0.0.4",
    "CONTROL_PLANE_MACHINE_COUNT": "1",
    "DNS_SERVERS": "[8.8.8.8]",
    "GATEWAY": "10.0.0.1",
    "IP_PREFIX": "24",
    "KUBERNETES_VERSION": "v1.31.4",
    "NODE_IP_RANGES": "[10.0.0.10-10.0.0.99]",
    "PROXMOX_SOURCENODE": "pve1",
    "TEMPLATE_VMID": "9000",
    "WORKER_MACHINE_COUNT": "2",
    "VM_SSH_KEYS": "",
}


def fill(text: str) -> str:
    """Substitute clusterctl's variables with their defaults."""

    def value(match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        known = VARIABLES.get(
            name, "10" if "PREFIX" in name else "[10.9.0.9]" if "RANGES" in name else "x"
        )
        return known if name in VARIABLES or default is None else default

    return re.sub(r"\$\{(\w+)(?::?=([^}]*))?\}", value, text)


def ours(documents: Iterator[Any]) -> Iterator[Json]:
    for document in documents:
        if isinstance(document, dict) and str(document.get("apiVersion", "")).startswith(GROUP):
            yield document


def manifests() -> list[Any]:
    """Collect the infrastructure objects in manifests and in fenced YAML blocks."""
    found = []
    for path in sorted((SHARED / "manifests" / "capmox").glob("*.yaml")):
        for n, obj in enumerate(ours(yaml.safe_load_all(fill(path.read_text())))):
            found.append(pytest.param(obj, id=f"{path.stem} {obj['kind']} {n}"))
    for path in sorted((SHARED / "seeds").glob("*.txt")):
        for block in re.findall(r"```yaml\n(.*?)```", path.read_text(), re.S):
            for n, obj in enumerate(ours(_documents(block))):
                found.append(pytest.param(obj, id=f"seed {path.stem[:3]} {obj['kind']} {n}"))
    return found


def _documents(block: str) -> Iterator[Any]:
    try:
        yield from yaml.safe_load_all(block)
    except yaml.YAMLError:
        return


def typed(obj: Json) -> Object:
    """Decode the object into its Struct, which checks all bounds."""
    version = obj["apiVersion"].rpartition("/")[2]
    cls = next(k for k in KINDS if (k.resource.version, k.resource.kind) == (version, obj["kind"]))
    clean = json.loads(json.dumps({k: v for k, v in obj.items() if v is not None}))
    read: Object = msgspec.convert(clean, cls)
    return read


@pytest.mark.skipif(not SHARED.exists(), reason="the shared manifests are not here")
@pytest.mark.parametrize("obj", manifests())
@pytest.mark.parametrize("version", VERSIONS)
def test_every_manifest_converts_to_every_version_and_back(obj: Json, version: str) -> None:
    clean = {k: v for k, v in obj.items() if v is not None}
    there = convert(obj, version)
    typed(there)
    back = convert(there, obj["apiVersion"].rpartition("/")[2])
    assert {k: back.get(k) for k in clean} == clean


def test_manifests_are_found() -> None:
    if SHARED.exists():
        assert len(manifests()) > 15


SAMPLES: dict[str, type[Object]] = {f"{k.resource.version} {k.resource.kind}": k for k in KINDS}
text = st.text("abcdefghij", min_size=3, max_size=6)


def _tree(cls: type[Object], data: st.DataObject) -> Json:
    """Generate an object of a kind from the types of its fields."""
    spec = data.draw(_objects(cls))
    made = {"apiVersion": cls.resource.api_version, "kind": cls.resource.kind, **spec}
    made["metadata"] = {"name": "x", "namespace": "default"}
    return made


@cache
def _objects(cls: type[Object]) -> st.SearchStrategy[Json]:
    return _values(msgspec.inspect.type_info(cls))


def _values(info: Any) -> st.SearchStrategy[Any]:
    kind = msgspec.inspect
    match info:
        case kind.StructType():
            return _struct(info)
        case kind.Metadata():
            return _values(info.type)
        case kind.UnionType():
            return st.one_of([_values(t) for t in info.types if not isinstance(t, kind.NoneType)])
        case kind.VarTupleType() | kind.ListType():
            return _list(info.item_type, info.min_length or 0)
        case kind.DictType():
            return st.dictionaries(text, _values(info.value_type), min_size=1, max_size=2)
        case kind.LiteralType():
            return st.sampled_from([v for v in info.values if v])
        case kind.BoolType():
            return st.booleans()
        case kind.IntType():
            step = info.multiple_of or 1
            low = max(info.ge or 1, 1)
            high = min(info.le or 4000, max(low, 4000))
            return st.integers(low, high).map(lambda n: -(-n // step) * step)
        case kind.FloatType():
            return st.integers(1, 9).map(float)
        case kind.StrType():
            return _string(info)
        case kind.AnyType():
            return st.dictionaries(st.sampled_from("ab"), st.integers(0, 9), min_size=1, max_size=2)
        case kind.DateTimeType():
            return st.just("2026-01-01T00:00:00Z")
        case _:
            raise TypeError(info)


def _string(info: Any) -> st.SearchStrategy[str]:
    if info.pattern and info.pattern.startswith("^[0-9]"):  # lists of CPUs
        return st.sampled_from(["0", "0-3"])
    if info.pattern and "net" in info.pattern:
        return st.integers(0, 9).map(lambda n: f"net{n}")
    if info.pattern and "scsi" in info.pattern:
        return st.integers(1, 9).map(lambda n: f"scsi{n}")
    return text


def _list(item: Any, least: int) -> st.SearchStrategy[list[Any]]:
    def distinct(items: list[Any]) -> bool:
        for key in ("name", "zone", "type", "net", "disk"):
            names = [i.get(key) for i in items if isinstance(i, dict) and key in i]
            if len(set(names)) != len(names):
                return False
        return True

    return st.lists(_values(item), min_size=max(least, 1), max_size=2).filter(distinct)


def _struct(info: Any) -> st.SearchStrategy[Json]:
    required: Json = {}
    optional: Json = {}
    for f in info.fields:
        if f.encode_name != "metadata":
            (required if f.required else optional)[f.encode_name] = _values(f.type)
    return st.fixed_dictionaries(required, optional=optional)


@pytest.mark.parametrize("cls", SAMPLES.values(), ids=SAMPLES)
@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
@settings(max_examples=10, suppress_health_check=list(HealthCheck), deadline=None)
def test_round_trip_loses_nothing(cls: type[Object], version: str, data: st.DataObject) -> None:
    obj = _tree(cls, data)
    there = convert(obj, version)
    typed(there)
    back = convert(there, cls.resource.version)
    assert {k: v for k, v in back.items() if v} == {k: v for k, v in obj.items() if v}


@given(data=st.data())
@settings(max_examples=30, suppress_health_check=list(HealthCheck), deadline=None)
def test_an_edit_in_an_old_version_reaches_the_hub(data: st.DataObject) -> None:
    hub = _tree(machine.ProxmoxMachine, data)
    old = convert(hub, "v1alpha1")
    changed = {**old, "spec": {**old.get("spec", {}), "numCores": 77, "pool": "new"}}
    back = convert(changed, HUB)
    want = {**hub.get("spec", {}), "numCores": 77, "pool": "new"}
    want.setdefault("full", back["spec"].get("full"))
    got = dict(back["spec"])
    got.setdefault("full", None)
    assert got == want


def machine_of(version: str, **spec: Any) -> Json:
    head = {"apiVersion": f"{GROUP}/{version}", "kind": "ProxmoxMachine"}
    return {**head, "metadata": {"name": "m"}, "spec": spec}


def test_short_names() -> None:
    short = machine_of("v1beta1", nodeName="pve", template="ubuntu", cores=4, memory=8192)
    short["spec"]["diskSize"] = 50
    hub = convert(short, HUB)
    assert hub["spec"] == {
        "target": "pve",
        "templateName": "ubuntu",
        "numCores": 4,
        "memoryMiB": 8192,
        "disks": {"bootVolume": {"sizeGb": 50}},
    }
    assert "annotations" not in hub["metadata"]
    assert convert(hub, "v1beta1") == short


def test_default_and_additional_devices() -> None:
    pool = {"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "p"}
    network = {
        "default": {"bridge": "vmbr0", "ipv4PoolRef": pool},
        "additionalDevices": [{"name": "net1", "bridge": "vmbr1", "vlan": 5}],
    }
    hub = convert(machine_of("v1alpha1", network=network, full=True), HUB)
    assert hub["spec"]["network"]["networkDevices"] == [
        {"name": "net0", "bridge": "vmbr0", "defaultIPv4": False, "ipPoolRef": [pool]},
        {"name": "net1", "bridge": "vmbr1", "vlan": 5},
    ]


def test_capmox_clusters_keep_uuid_provider_ids() -> None:
    old = {
        "apiVersion": f"{GROUP}/v1alpha2",
        "kind": "ProxmoxCluster",
        "metadata": {"name": "c"},
        "spec": {"dnsServers": ["8.8.8.8"]},
    }
    hub = convert(old, HUB)
    assert hub["spec"]["providerIDFormat"] == "UUID"
    assert convert(hub, "v1alpha2") == old


def test_lossless_conversions_set_no_annotation() -> None:
    hub = convert(machine_of("v1alpha2", templateID=100, full=True), HUB)
    assert "annotations" not in hub["metadata"]


def test_fields_the_older_version_lacks_are_stored_in_an_annotation() -> None:
    hub = machine_of(HUB, cpuType="host", full=True)
    old = convert(hub, "v1alpha1")
    assert "cpuType" not in old["spec"]
    assert HUB_DATA in old["metadata"]["annotations"]
    assert convert(old, HUB) == hub


def test_an_invalid_annotation_is_ignored() -> None:
    old = machine_of("v1alpha1", numCores=2, full=True)
    old["metadata"]["annotations"] = {HUB_DATA: "{", "mine": "kept"}
    hub = convert(old, HUB)
    assert hub["spec"]["numCores"] == 2
    assert hub["metadata"]["annotations"] == {"mine": "kept"}


@pytest.mark.parametrize(
    "obj, version",
    [
        pytest.param({"apiVersion": "v1", "kind": "Pod"}, HUB, id="another group"),
        pytest.param(machine_of("v9"), HUB, id="a version nobody knows"),
        pytest.param(machine_of(HUB) | {"kind": "Proxmox"}, "v1alpha1", id="another kind"),
    ],
)
def test_other_kinds_are_rejected(obj: Json, version: str) -> None:
    with pytest.raises(MoxwellError):
        convert(obj, version)


def test_typed_hub_objects_round_trip() -> None:
    made = machine.ProxmoxMachine(spec=machine.ProxmoxMachineSpec(num_cores=4))
    assert msgspec.convert(as_dict(made), machine.ProxmoxMachine) == made
    assert {m.VERSION for m in (v1alpha1, v1alpha2, v1beta1)} | {HUB} == set(VERSIONS)
    assert len(KINDS) == 16
    assert cluster.KINDS[0].resource.version == HUB
