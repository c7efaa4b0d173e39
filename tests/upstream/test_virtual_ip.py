"""A genuine API server accepts the pod that announces the virtual IP of a management cluster."""

import pytest

from envtest.control_plane import ControlPlane
from moxwell.management.spec import ManagementSpec, ManagementZone
from moxwell.management.virtual_ip import PATH, virtual_ip_files

pytestmark = [pytest.mark.slow, pytest.mark.genuine]
SPEC = ManagementSpec(
    kubernetes="v1.34.1",
    endpoint="192.0.2.40",
    zones=(ManagementZone(region="north", addresses=("192.0.2.41",)),),
)
STRICT = ("create", "--dry-run=server", "--validate=strict", "-o", "name", "-f", "-")


def manifest() -> str:
    (file,) = virtual_ip_files(SPEC)
    assert file["path"] == PATH
    return str(file["content"])


def test_the_static_pod_of_kube_vip_is_a_valid_pod(genuine: ControlPlane) -> None:
    done = genuine.kubectl(*STRICT, stdin=manifest())
    assert done.stdout.strip() == "pod/kube-vip"


def test_an_unknown_field_would_be_refused(genuine: ControlPlane) -> None:
    wrong = manifest().replace("hostNetwork:", "hostNetworks:")
    done = genuine.kubectl(*STRICT, stdin=wrong, check=False)
    assert done.returncode != 0
    assert 'unknown field "spec.hostNetworks"' in done.stderr
