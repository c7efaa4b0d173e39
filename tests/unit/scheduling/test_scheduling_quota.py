"""Amounts, limits and the figures of a refusal."""

import pytest

from moxwell.errors import Invalid
from moxwell.scheduling import quota
from moxwell.scheduling.quota import (
    QUOTA,
    Amounts,
    excesses,
    limits_of,
    read_annotation,
    usage_of_machines,
)

LIMITS = limits_of({"cpu": 4, "requests.memory": "16Gi", "nodes": 3, "pods": 10})


@pytest.mark.parametrize(
    ("asked", "used", "before", "said"),
    [
        pytest.param(Amounts(cpu=4), Amounts(), Amounts(), "", id="exactly the limit"),
        pytest.param(
            Amounts(cpu=12), Amounts(cpu=0), Amounts(), "cpu: 12 asked, 0 used by others, limit 4",
            id="twelve under four",
        ),
        pytest.param(Amounts(cpu=1), Amounts(cpu=4), Amounts(), "1 asked, 4 used", id="others"),
        pytest.param(Amounts(cpu=6), Amounts(), Amounts(cpu=8), "", id="less than before"),
        pytest.param(Amounts(cpu=8), Amounts(), Amounts(cpu=8), "", id="as much as before"),
        pytest.param(
            Amounts(memory=20 << 30), Amounts(memory=1 << 30), Amounts(),
            "memory: 20Gi asked, 1Gi used by others, limit 16Gi", id="memory",
        ),
        pytest.param(Amounts(clusters=9, storage=1 << 60), Amounts(), Amounts(), "", id="no limit"),
    ],
)  # fmt: skip
def test_excesses(asked: Amounts, used: Amounts, before: Amounts, said: str) -> None:
    found = excesses("tenant-red", LIMITS, asked=asked, used=used, before=before)
    assert bool(found) == bool(said)
    assert said in quota.sentence(found)


def test_a_fraction_of_a_cpu_is_a_limit_too() -> None:
    limits = limits_of({"cpu": "1500m"})
    assert excesses("t", limits, asked=Amounts(cpu=1), used=Amounts()) == ()
    assert str(excesses("t", limits, asked=Amounts(cpu=2), used=Amounts())[0]).endswith("1500m")


def test_a_nested_tenant_counts_for_those_above_it() -> None:
    assert quota.tenant_namespaces("tenant-a-b-c") == ("tenant-a-b-c", "tenant-a-b", "tenant-a")
    assert quota.tenant_namespaces("default") == ("default",)
    assert quota.belongs_to("tenant-a-b", "tenant-a")
    assert not quota.belongs_to("tenant-ab", "tenant-a")


def test_the_annotation_returns_the_limits() -> None:
    meta = {"name": "tenant-red", "annotations": {QUOTA: quota.as_annotation(LIMITS)}}
    assert read_annotation(meta) == LIMITS
    assert set(LIMITS) == {"cpu", "memory", "nodes"}
    assert read_annotation({"name": "default"}) == {}


@pytest.mark.parametrize("text", ["{", "[]", '{"cpu": "x"}'])
def test_a_broken_annotation_refuses_machines_instead_of_limiting_nothing(text: str) -> None:
    with pytest.raises(Invalid):
        read_annotation({"name": "tenant-red", "annotations": {QUOTA: text}})


def test_the_use_of_limits_is_told_in_their_own_units() -> None:
    limits = limits_of({"cpu": 16, "requests.memory": "64Gi", "storage": "1Ti"})
    used = Amounts(cpu=6, memory=24 << 30, storage=1 << 30)
    assert usage_of_machines(limits, used) == ["cpu 6 of 16", "memory 24Gi of 64Gi"]
    assert usage_of_machines({}, used) == []
