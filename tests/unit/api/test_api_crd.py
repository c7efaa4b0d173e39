"""CRD rendering: declarations appear in the CRD, and rules hold in Python as well."""

from typing import Annotated, Any, ClassVar, Literal

import pytest
import yaml
from msgspec import Meta, field

from moxwell.api import crd, registry, schema
from moxwell.api import validation as rules
from moxwell.api.conditions import Condition
from moxwell.api.crd import ConversionWebhook
from moxwell.api.kinds import Column, Object, ScalePaths, ValidationRule, kind
from moxwell.api.meta import ObjectMeta, Value
from moxwell.errors import Bug


class Disk(Value, frozen=True, kw_only=True):
    """A disk."""

    rules: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule(
            "self.sizeGb >= oldSelf.sizeGb",
            "a disk cannot shrink",
            lambda new, old: new.size_gb >= old.size_gb,
        ),
    )
    name: str
    size_gb: Annotated[int, Meta(gt=4, lt=100)] = field(name="sizeGb")


class ToySpec(Value, frozen=True, kw_only=True):
    """What a toy is."""

    rules: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule(
            "!has(self.color) || self.cores > 1",
            "only large toys have a color",
            lambda new, old: not new.color or new.cores > 1,
            field_path=".color",
        ),
    )
    cores: Annotated[int, Meta(ge=1, le=64, description="how many")] = 2
    memory: Annotated[int, Meta(multiple_of=8)] | None = None
    model: Literal["b", "a"] = "a"
    color: Annotated[str, Meta(pattern="^[a-z]+$", max_length=9)] = ""
    surge: int | str | None = None
    disks: Annotated[tuple[Disk, ...], schema.keyed("name", max_length=4)] = ()
    tags: Annotated[tuple[str, ...], schema.unique(min_length=1)] = ()
    free: Any = None
    extra: dict[str, Any] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    full: bool = True
    hosts: frozenset[str] = frozenset()


class ToyStatus(Value, frozen=True, kw_only=True):
    conditions: tuple[Condition, ...] = ()


FACTS: dict[str, Any] = {
    "group": "toys.example",
    "plural": "toys",
    "name": "Toy",
    "short": ("ty",),
    "categories": ("all",),
    "status": True,
    "scale": ScalePaths(selector=".status.selector"),
    "labels": {"contract": "v1"},
    "selectable": (".spec.color",),
    "columns": (Column("Cores", ".spec.cores", "integer", 1, "how many"),),
}


@kind(version="v2", **FACTS)
class Toy(Object, frozen=True, kw_only=True):
    """A toy."""

    spec: ToySpec
    status: ToyStatus = field(default_factory=ToyStatus)


@kind(version="v1", storage=False, deprecated="use v2", open=True, **FACTS)
class OldToy(Object, frozen=True, kw_only=True):
    """A toy."""

    spec: ToySpec = field(default_factory=ToySpec)


SPEC = schema.of_kind(Toy)["properties"]["spec"]["properties"]


@pytest.mark.parametrize(
    "name, expected",
    [
        (
            "cores",
            {
                "type": "integer",
                "minimum": 1,
                "maximum": 64,
                "default": 2,
                "description": "how many",
            },
        ),
        ("memory", {"type": "integer", "multipleOf": 8}),
        ("model", {"type": "string", "enum": ["a", "b"], "default": "a"}),
        ("color", {"type": "string", "pattern": "^[a-z]+$", "maxLength": 9}),
        (
            "surge",
            {
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "x-kubernetes-int-or-string": True,
            },
        ),
        (
            "tags",
            {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
                "x-kubernetes-list-type": "set",
            },
        ),
        ("free", {"x-kubernetes-preserve-unknown-fields": True}),
        ("extra", {"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
        ("labels", {"type": "object", "additionalProperties": {"type": "string"}}),
        ("full", {"type": "boolean", "default": True}),
        ("hosts", {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}),
    ],
)
def test_a_field_becomes_its_schema(name: str, expected: dict[str, Any]) -> None:
    assert SPEC[name] == expected


def test_a_list_map_has_keys_bounds_and_rules() -> None:
    disks = SPEC["disks"]
    assert disks["x-kubernetes-list-map-keys"] == ["name"]
    assert disks["maxItems"] == 4
    size = disks["items"]["properties"]["sizeGb"]
    assert (size["minimum"], size["exclusiveMinimum"], size["exclusiveMaximum"]) == (4, True, True)
    assert disks["items"]["required"] == ["name", "sizeGb"]
    assert disks["items"]["x-kubernetes-validations"] == [
        {"rule": "self.sizeGb >= oldSelf.sizeGb", "message": "a disk cannot shrink"}
    ]


def test_conditions_are_a_map_by_type_and_whole() -> None:
    conditions = schema.of_kind(Toy)["properties"]["status"]["properties"]["conditions"]
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]
    assert set(conditions["items"]["required"]) == {
        "type",
        "status",
        "reason",
        "message",
        "lastTransitionTime",
    }


def test_a_crd_has_all_its_parts() -> None:
    hook = ConversionWebhook(
        service="hook", namespace="ns", ca="Q0E=", annotations={"inject": "ca"}
    )
    made = crd.crd((Toy, OldToy), hook)
    assert made["metadata"] == {
        "name": "toys.toys.example",
        "labels": {"contract": "v1"},
        "annotations": {"inject": "ca"},
    }
    assert made["spec"]["names"] == {
        "kind": "Toy",
        "listKind": "ToyList",
        "plural": "toys",
        "singular": "toy",
        "shortNames": ["ty"],
        "categories": ["all"],
    }
    assert made["spec"]["conversion"]["webhook"]["clientConfig"] == {
        "service": {"name": "hook", "namespace": "ns", "port": 443, "path": "/convert"},
        "caBundle": "Q0E=",
    }
    new, old = made["spec"]["versions"]
    assert (new["storage"], old["storage"], old["deprecationWarning"]) == (True, False, "use v2")
    assert new["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    }
    assert new["additionalPrinterColumns"][0]["priority"] == 1
    assert new["selectableFields"] == [{"jsonPath": ".spec.color"}]


def test_a_webhook_may_be_a_url() -> None:
    made = crd.crd((Toy, OldToy), ConversionWebhook(url="https://127.0.0.1:9443/convert"))
    assert made["spec"]["conversion"]["webhook"]["clientConfig"] == {
        "url": "https://127.0.0.1:9443/convert"
    }


def test_without_a_webhook_nothing_is_converted_outside() -> None:
    assert crd.crd((Toy, OldToy))["spec"]["conversion"] == {"strategy": "None"}


def test_open_kinds_keep_unknown_fields_at_every_depth() -> None:
    disk = schema.of_kind(OldToy)["properties"]["spec"]["properties"]["disks"]["items"]
    assert disk["x-kubernetes-preserve-unknown-fields"] is True
    assert "x-kubernetes-preserve-unknown-fields" not in SPEC["disks"]["items"]


def test_two_stored_versions_are_a_bug() -> None:
    with pytest.raises(Bug, match="exactly one"):
        crd.crd((Toy, Toy))


def test_rendered_crds_are_yaml_in_a_stable_order() -> None:
    text = registry.render_crds(upstream=True)
    docs = list(yaml.load_all(text, Loader=yaml.CSafeLoader))
    names = [doc["metadata"]["name"] for doc in docs]
    assert names == sorted(names)
    assert text == registry.render_crds(upstream=True)
    assert "&id" not in text
    assert set(names) > {
        "proxmoxmachines.infrastructure.cluster.x-k8s.io",
        "tenants.apps.cozystack.io",
    }


def toy(name: str = "t", **spec: Any) -> Toy:
    return Toy(metadata=ObjectMeta(name=name), spec=ToySpec(**spec))


def test_rules_hold_in_python_too() -> None:
    assert rules.violations(toy(cores=2, color="red")) == ()
    [broken] = rules.violations(toy(cores=1, color="red"))
    assert str(broken) == "spec.color: only large toys have a color"


def test_transition_rules_match_list_elements_by_name() -> None:
    small, large = Disk(name="a", size_gb=5), Disk(name="a", size_gb=9)
    assert rules.violations(toy(disks=(small,))) == ()
    assert rules.violations(toy(disks=(large,)), toy(disks=(small,))) == ()
    assert rules.violations(toy(disks=(Disk(name="b", size_gb=5),)), toy(disks=(large,))) == ()
    [broken] = rules.violations(toy(disks=(small,)), toy(disks=(large,)))
    assert str(broken) == "spec.disks[0]: a disk cannot shrink"
