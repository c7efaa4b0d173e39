"""The table of upstream's fields has every field of the genuine CRDs that envtest installs."""

from collections.abc import Iterator
from typing import Any

import pytest

import upstream_fields as generator
from envtest import locate
from envtest.plugin import require
from moxwell.api import upstream_fields

pytestmark = pytest.mark.genuine
PROGRAMS = (
    "cluster-api",
    "kubeadm-bootstrap",
    "kubeadm-control-plane",
    "in-cluster-ipam",
    "kamaji",
)


def lacking(known: Any, genuine: Any, path: str = "") -> Iterator[str]:
    """The fields of the second that the first does not have."""
    if isinstance(genuine, list):
        yield from lacking(known[0], genuine[0], f"{path}[]")
    elif isinstance(genuine, dict):
        for name, of in genuine.items():
            if name in known:
                yield from lacking(known[name], of, f"{path}.{name}")
            else:
                yield f"{path}.{name}"


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_table_has_the_genuine_fields(program: str) -> None:
    require(program)
    table = upstream_fields.table()
    folder = locate.folder(program)
    kinds = [k for crd in generator.definitions(folder) for k in generator.kinds_of(crd)]
    assert kinds
    assert {name: list(lacking(table[name], fields)) for name, fields in kinds} == {
        name: [] for name, _ in kinds
    }
