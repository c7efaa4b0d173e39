"""
Credentials of a cluster for kubectl's exec plugins (``client.authentication.k8s.io/v1``). Pure.

The client certificate of a kubeconfig lasts for days; the instance renews it. A kubeconfig that
runs ``moxwell cluster credential`` instead of holding it works for as long as the instance does.
kubectl calls the command again when the credential expires.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import yaml

from moxwell.errors import Invalid
from moxwell.kube import kubeconfig_writer
from moxwell.pki.certificates import expires

Json = dict[str, Any]
API = "client.authentication.k8s.io/v1"
ENVIRONMENT = ("XDG_STATE_HOME",)
HINT = "moxwell must be installed, and its instance must run: `moxwell up`"


def exec_credential(kubeconfig: str) -> Json:
    """The ExecCredential of a kubeconfig with a client certificate."""
    certificate = kubeconfig_writer.client_certificate(kubeconfig)
    key = kubeconfig_writer.client_key(kubeconfig)
    if certificate is None or key is None:
        raise Invalid("the kubeconfig of the cluster has no client certificate")
    status = {
        "clientCertificateData": certificate.decode(),
        "clientKeyData": key.decode(),
        "expirationTimestamp": _stamp(expires(certificate)),
    }
    return {"apiVersion": API, "kind": "ExecCredential", "status": status}


def with_exec(kubeconfig: bytes, command: Sequence[str], environ: Mapping[str, str]) -> bytes:
    """
    A kubeconfig whose users run a command in place of their certificates.

    Of ``environ`` the command gets what says where the instance is.
    """
    tree = yaml.safe_load(kubeconfig)
    program, *args = command
    plugin = {
        "apiVersion": API,
        "command": program,
        "args": args,
        "env": [{"name": n, "value": environ[n]} for n in ENVIRONMENT if environ.get(n)],
        "interactiveMode": "Never",
        "provideClusterInfo": False,
        "installHint": HINT,
    }
    for each in tree["users"]:
        each["user"] = {"exec": plugin}
    return yaml.safe_dump(tree, sort_keys=False).encode()


def _stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
