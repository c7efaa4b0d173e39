"""
Answers kubectl's exec plugin without importing the command line or the Kubernetes client.

kubectl runs ``moxwell cluster credential`` before its requests, so its start time is that of every
call. Only the command line that ``cluster_kubeconfig.command`` writes is answered here, and only
if the Secret exists: everything else is left to the ordinary command, which says what is wrong.
"""

import base64
import http.client
import json
import os
import ssl
from collections.abc import Mapping, Sequence
from urllib.parse import quote, urlsplit

from moxwell.app.command_line import DEFAULT_INSTANCE
from moxwell.app.state_dir import StateDir
from moxwell.cli import exec_credential
from moxwell.errors import MoxwellError
from moxwell.kube import kubeconfig_writer

WORDS = ["cluster", "credential"]
TIMEOUT_SECONDS = 5


def find_credential(argv: Sequence[str], environ: Mapping[str, str]) -> str:
    """The ExecCredential that a command line asks for; empty if it is not answered here."""
    words = list(argv)
    if words[:2] != WORDS or words[3:4] != ["--namespace"] or len(words) not in (5, 7):
        return ""
    if words[5:6] not in ([], ["--name"]):
        return ""
    cluster, namespace = words[2], words[4]
    name = words[6] if len(words) == 7 else environ.get("MOXWELL_NAME", DEFAULT_INSTANCE)
    path = f"/api/v1/namespaces/{quote(namespace, '')}/secrets/{quote(cluster, '')}-kubeconfig"
    try:
        kubeconfig = StateDir(name, environ).kubeconfig.read_text(encoding="utf-8")
        secret = json.loads(_get(kubeconfig, path))
        text = base64.b64decode(secret["data"]["value"]).decode()
        return json.dumps(exec_credential.exec_credential(text))
    except (OSError, http.client.HTTPException, ValueError, LookupError, MoxwellError):
        return ""


def _get(kubeconfig: str, path: str) -> bytes:
    """The body of a GET with the client certificate of a kubeconfig."""
    address = urlsplit(kubeconfig_writer.server(kubeconfig))
    connection = http.client.HTTPSConnection(
        address.hostname or "", address.port, timeout=TIMEOUT_SECONDS, context=_tls(kubeconfig)
    )
    try:
        connection.request("GET", path, headers={"Accept": "application/json"})
        answer = connection.getresponse()
        return answer.read() if answer.status == http.HTTPStatus.OK else b"{}"
    finally:
        connection.close()


def _tls(kubeconfig: str) -> ssl.SSLContext:
    """A context with the CA and the client certificate of a kubeconfig."""
    authority = kubeconfig_writer.authority(kubeconfig) or b""
    key = kubeconfig_writer.client_key(kubeconfig) or b""
    certificate = kubeconfig_writer.client_certificate(kubeconfig) or b""
    context = ssl.create_default_context(cadata=authority.decode())
    memory = os.memfd_create("certificate", os.MFD_CLOEXEC)  # ssl reads files only
    try:
        os.write(memory, key + b"\n" + certificate)
        context.load_cert_chain(f"/proc/self/fd/{memory}")
    finally:
        os.close(memory)
    return context
