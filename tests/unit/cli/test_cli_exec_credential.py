"""The exec plugin of kubectl: what it prints, and the kubeconfig that runs it."""

from datetime import UTC, datetime

import pytest
import yaml

from moxwell.cli import cluster_kubeconfig, exec_credential
from moxwell.errors import Invalid
from moxwell.kube import kubeconfig_writer
from moxwell.pki import certificates
from moxwell.pki.certificates import CertificateConfig

NOW = datetime(2026, 5, 1, tzinfo=UTC)
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
