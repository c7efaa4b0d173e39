"""The default node pool of a cluster."""

import msgspec
import pytest

from moxwell.api.karpenter.nodepools import NodePool
from moxwell.api.karpenter.proxmox import ProxmoxNodeClass
from moxwell.api.karpenter.proxmox_templates import ProxmoxUnmanagedTemplate
from moxwell.controllers.karpenter.default_pool import ANNOTATION, default_objects, node_limit
from moxwell.controllers.karpenter.nodepool.validation import validation_errors


def test_the_objects_refer_to_each_other() -> None:
    bodies = [body for body, _ in default_objects("v1.34.1", 3)]
    template = msgspec.convert(bodies[0], ProxmoxUnmanagedTemplate)
    node_class = msgspec.convert(bodies[1], ProxmoxNodeClass)
    pool = msgspec.convert(bodies[2], NodePool)
    assert template.spec.tags == ("k8s-v1.34.1",)
    assert node_class.spec.instance_template_ref.name == template.name
    assert pool.spec.template.spec.node_class_ref.name == node_class.name
    assert pool.spec.limits == {"nodes": "3"}
    assert validation_errors(pool) == ()


@pytest.mark.parametrize(
    ("text", "limit"),
    [("3", 3), ("", None), ("0", None), ("-1", None), ("many", None), ("1001", None), ("٣", None)],
)
def test_the_annotation_is_a_number_of_nodes(text: str, limit: int | None) -> None:
    assert node_limit({ANNOTATION: text}) == limit
    assert node_limit({}) is None
