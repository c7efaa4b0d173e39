"""Which values the annotations of node classes and ProxmoxClusters may have."""

from typing import Any

import pytest

from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.warm_guests import count_in
from moxwell.api.karpenter.annotations import (
    FITTED_SIZES,
    HUGE_PAGES,
    NODE_POLICY,
    RULES,
    WARM_POOL,
    annotation_errors,
)
from moxwell.api.karpenter.proxmox import ProxmoxNodeClass
from moxwell.app import admission
from moxwell.errors import Invalid
from moxwell.scheduling.numa.host_numa import NodePolicy

NODE_CLASS = (ProxmoxNodeClass.resource.group, ProxmoxNodeClass.resource.kind)
CLUSTER = (ProxmoxCluster.resource.group, ProxmoxCluster.resource.kind)
Json = dict[str, Any]


def of(annotations: dict[str, str] | None, **more: Any) -> Json:
    return {"metadata": {"annotations": annotations, **more}}


def test_the_rules_are_for_our_kinds() -> None:
    assert set(RULES) == {NODE_CLASS, CLUSTER}


@pytest.mark.parametrize("text", ["", "x", "-1", "21", "020", "1.5", "2 per host", "٣"])
def test_a_warm_pool_that_is_no_number_is_refused_with_field_and_advice(text: str) -> None:
    for kind in (NODE_CLASS, CLUSTER):
        (error,) = annotation_errors(*kind, of({WARM_POOL: text}), None)
        assert error.path == f"metadata.annotations[{WARM_POOL}]"
        assert repr(text[:20]) in error.message
        assert "set a number from 0 to 20" in error.message
    assert count_in({WARM_POOL: text}) is None


@pytest.mark.parametrize("text", ["0", "1", "07", " 3 ", "19", "20"])
def test_a_number_of_warm_guests_is_admitted(text: str) -> None:
    assert annotation_errors(*NODE_CLASS, of({WARM_POOL: text}), None) == ()
    assert count_in({WARM_POOL: text}) == int(text)


@pytest.mark.parametrize(
    "kind, annotation, good, bad",
    [
        (NODE_CLASS, NODE_POLICY, [*NodePolicy, ""], ["Static", "pinned"]),
        (CLUSTER, NODE_POLICY, [*NodePolicy, ""], ["none"]),
        (NODE_CLASS, HUGE_PAGES, ["2", "1024", ""], ["1", "2Mi", "1G"]),
        (CLUSTER, FITTED_SIZES, ["true", "false", "fine", ""], ["True", "coarse"]),
    ],
)
def test_the_other_annotations(
    kind: tuple[str, str], annotation: str, good: list[str], bad: list[str]
) -> None:
    assert not any(annotation_errors(*kind, of({annotation: text}), None) for text in good)
    for text in bad:
        (error,) = annotation_errors(*kind, of({annotation: text}), None)
        assert error.path == f"metadata.annotations[{annotation}]"
        assert "; set " in error.message


@pytest.mark.parametrize(
    "new, old",
    [
        pytest.param(None, None, id="deleted"),
        pytest.param(of(None), None, id="no annotations"),
        pytest.param({}, None, id="no metadata"),
        pytest.param(of({"other": "x"}), None, id="another annotation"),
        pytest.param(of({WARM_POOL: "x", "a": "b"}), of({WARM_POOL: "x"}), id="stored before"),
        pytest.param(of({WARM_POOL: "x"}, deletionTimestamp="now"), None, id="being deleted"),
    ],
)
def test_what_is_not_refused(new: Json | None, old: Json | None) -> None:
    assert annotation_errors(*NODE_CLASS, new, old) == ()


def test_another_kind_may_have_the_annotation() -> None:
    assert annotation_errors("", "ConfigMap", of({WARM_POOL: "x"}), None) == ()


def test_admission_refuses_the_annotation_of_a_cluster_whose_spec_does_not_change() -> None:
    def body(count: str) -> Json:
        head = {"apiVersion": ProxmoxCluster.resource.api_version, "kind": CLUSTER[1]}
        meta = {"name": "c", "namespace": "default", "annotations": {WARM_POOL: count}}
        return head | {"metadata": meta, "spec": {"dnsServers": ["10.0.0.1"]}}

    for old in (None, body("1")):
        with pytest.raises(Invalid, match=r"annotations\[moxwell.dev/warm-pool\]: 'x' is no value"):
            admission.refuse(*CLUSTER, body("x"), old, dry_run=False)
    admission.refuse(*CLUSTER, body("2"), body("1"), dry_run=False)
