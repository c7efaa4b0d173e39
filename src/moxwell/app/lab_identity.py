"""
The identity of the lab at the API servers of embedded control planes.

All simulated kubelets of a cluster share connections that this identity opens; their requests
impersonate their nodes. It is issued by the CA of the tenant, whose key is in the state directory,
and kept in memory only. Control planes from binaries and on machines have none: there, every
kubelet opens connections of its own.
"""

from pathlib import Path

from yarl import URL

from moxwell.clock import Clock
from moxwell.kube.credentials import ApiIdentity, SecretText
from moxwell.kube.kubeconfig import ApiAccess
from moxwell.pki.folder import CertificateAuthority

USER, GROUPS = "moxwell:lab", ("system:masters",)


class LabIdentities:
    """Finds the folder of a control plane by its port and its CA."""

    def __init__(self, control_planes: Path, clock: Clock) -> None:
        self._root, self._clock = control_planes, clock

    def find(self, access: ApiAccess) -> ApiIdentity | None:
        """The lab's identity at an API server; None if it has none there."""
        port = URL(access.server).port
        for file in sorted(self._root.glob("*/*/port")):
            pki = file.parent / "pki"
            if file.read_text() == str(port) and (pki / "ca.crt").read_text() == access.ca:
                pair = CertificateAuthority(pki, self._clock.now).client(USER, GROUPS)
                return ApiIdentity(
                    certificate=pair.certificate.decode(), key=SecretText(pair.key.decode())
                )
        return None
