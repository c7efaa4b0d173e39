"""The exec plugin of kubectl: what it prints, and the kubeconfig that runs it."""

import base64
import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
import yaml

from moxwell.cli import cluster_kubeconfig, exec_credential, quick_credential
from moxwell.errors import Invalid
from moxwell.kube import kubeconfig_writer
from moxwell.pki import certificates
from moxwell.pki.certificates import CertificateConfig

NOW = datetime.now(UTC)
CA = certificates.create_ca("ca", NOW)
CLIENT = certificates.issue(
    CertificateConfig(common_name="admin", lifetime=certificates.ADMIN_LIFETIME), CA, NOW
)
TEXT = kubeconfig_writer.render("https://192.0.2.1:6443", CA.certificate, CLIENT, "demo")


def test_the_credential_is_the_certificate_and_its_end() -> None:
    made = exec_credential.exec_credential(TEXT)
    ends = certificates.expires(CLIENT.certificate).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert made == {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {
            "clientCertificateData": CLIENT.certificate.decode(),
            "clientKeyData": CLIENT.key.decode(),
            "expirationTimestamp": ends,
        },
    }


def test_a_kubeconfig_without_a_certificate_has_no_credential() -> None:
    with pytest.raises(Invalid, match="no client certificate"):
        exec_credential.exec_credential("users: []")


def test_the_kubeconfig_has_a_command_and_no_key() -> None:
    command = ["/bin/moxwell", "cluster", "credential", "demo"]
    made = exec_credential.with_exec(TEXT.encode(), command, {"XDG_STATE_HOME": "/s", "HOME": "/h"})
    tree = yaml.safe_load(made)
    plugin = tree["users"][0]["user"]["exec"]
    assert (plugin["command"], plugin["args"]) == (command[0], command[1:])
    assert plugin["env"] == [{"name": "XDG_STATE_HOME", "value": "/s"}]
    assert plugin["interactiveMode"] == "Never"
    assert b"client-key-data" not in made
    assert tree["clusters"] == yaml.safe_load(TEXT)["clusters"]


def test_the_command_names_an_instance_only_if_it_is_another() -> None:
    assert "--name" not in cluster_kubeconfig.command("demo", "tenant-demo", "lab")
    assert cluster_kubeconfig.command("c", "n", "prod")[-2:] == ["--name", "prod"]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A state directory with the kubeconfig of an instance whose API nobody serves."""
    folder = tmp_path / "moxwell" / "lab"
    folder.mkdir(parents=True)
    nobody = TEXT.replace("192.0.2.1:6443", "127.0.0.1:1")
    (folder / "kubeconfig").write_text(nobody)
    return {"XDG_STATE_HOME": str(tmp_path)}


@pytest.mark.parametrize(
    "argv",
    [
        pytest.param("cluster credential demo --namespace a", id="the API does not answer"),
        pytest.param("cluster credential demo --namespace a --name other", id="no such instance"),
        pytest.param("cluster credential demo --namespace a --name A/B", id="an invalid instance"),
        pytest.param("cluster credential demo", id="no namespace"),
        pytest.param("cluster credential --help", id="help"),
        pytest.param("cluster credential demo --namespace a --nmae b", id="unknown option"),
        pytest.param("cluster credential demo -n a", id="another form"),
    ],
)
def test_what_is_not_answered_quickly_is_left_to_the_command(
    argv: str, environ: dict[str, str]
) -> None:
    assert quick_credential.find_credential(argv.split(), environ) == ""


def test_the_quick_answer_is_that_of_the_command(environ: dict[str, str], tmp_path: Path) -> None:
    secret = {"data": {"value": base64.b64encode(TEXT.encode()).decode()}}
    with serving(tmp_path, secret) as (address, asked):
        config = kubeconfig_writer.render(address, CA.certificate, CLIENT, "lab")
        (tmp_path / "moxwell" / "lab" / "kubeconfig").write_text(config)
        argv = cluster_kubeconfig.command("demo", "tenant-demo", "lab")
        found = quick_credential.find_credential(argv[argv.index("cluster") :], environ)
    assert json.loads(found) == exec_credential.exec_credential(TEXT)
    assert asked == ["/api/v1/namespaces/tenant-demo/secrets/demo-kubeconfig"]


@contextmanager
def serving(folder: Path, answer: object) -> Iterator[tuple[str, list[str]]]:
    """An HTTPS server that requires a client certificate of the CA and answers every GET."""
    now = datetime.now(UTC)
    names = CertificateConfig(common_name="api", alt_names=("127.0.0.1",))
    pair = certificates.issue(names, CA, now)
    (folder / "server.pem").write_bytes(pair.certificate + pair.key)
    (folder / "ca.pem").write_bytes(CA.certificate)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=folder / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(folder / "server.pem")
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"https://127.0.0.1:{server.server_port}", asked
        server.shutdown()
