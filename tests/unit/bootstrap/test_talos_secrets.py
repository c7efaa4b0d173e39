"""The secrets of Talos control planes: their text, the form of keys, and client certificates."""

import base64
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from moxwell.bootstrap import talos_secrets
from moxwell.errors import Invalid
from moxwell.pki import certificates

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECRETS = talos_secrets.create_secrets(NOW)


def test_the_bundle_is_read_as_it_was_written() -> None:
    assert talos_secrets.parse(talos_secrets.as_text(SECRETS)) == SECRETS


def test_talos_has_an_ed25519_key_and_the_others_elliptic_curves() -> None:
    for pair in (SECRETS.etcd, SECRETS.kubernetes, SECRETS.aggregator):
        assert pair.key.startswith(b"-----BEGIN EC PRIVATE KEY-----")
        assert certificates.matches(pair)
    assert SECRETS.talos.key.startswith(b"-----BEGIN ED25519 PRIVATE KEY-----")
    assert certificates.matches(SECRETS.talos)
    assert SECRETS.service_account.startswith(b"-----BEGIN EC PRIVATE KEY-----")


def test_two_clusters_share_nothing() -> None:
    other = talos_secrets.create_secrets(NOW)
    names = ("cluster_id", "cluster_secret", "bootstrap_token", "secretbox", "trustd_token")
    assert all(getattr(other, name) != getattr(SECRETS, name) for name in names)


def test_no_secret_is_printed() -> None:
    text = repr(SECRETS)
    assert "PRIVATE" not in text
    for secret in (SECRETS.cluster_secret, SECRETS.bootstrap_token, SECRETS.trustd_token):
        assert secret not in text


WRONG = ["", "a: [", "[]", "cluster: {id: hunter2}", "certs: {}\nsecrets: {}\n"]


@pytest.mark.parametrize("text", WRONG)
def test_a_bundle_with_a_part_missing_is_refused_without_its_text(text: str) -> None:
    with pytest.raises(Invalid, match="secrets bundle") as caught:
        talos_secrets.parse(text)
    assert "hunter2" not in str(caught.value)


def test_the_administrator_has_a_certificate_of_the_ca_of_talos() -> None:
    client = talos_secrets.administrator(SECRETS, NOW)
    wanted = talos_secrets.ADMINISTRATOR
    assert certificates.renewal_reason(client.certificate, wanted, SECRETS.talos, NOW) == ""
    assert certificates.renewal_reason(client.certificate, wanted, SECRETS.etcd, NOW) == "issuer"
    short = talos_secrets.administrator(SECRETS, NOW, timedelta(hours=1))
    assert certificates.expires(short.certificate) == NOW + timedelta(hours=1)
    subject = certificates.load_certificate(client.certificate).subject
    assert subject.rfc4514_string() == "O=os:admin"


def test_a_talosconfig_has_the_addresses_and_the_client_certificate() -> None:
    client = talos_secrets.administrator(SECRETS, NOW)
    text = talos_secrets.client_config(SECRETS, "management", ("192.0.2.1", "192.0.2.2"), client)
    made = yaml.safe_load(text)
    context = made["contexts"][made["context"]]
    assert context["endpoints"] == ["192.0.2.1", "192.0.2.2"]
    assert base64.b64decode(context["ca"]) == SECRETS.talos.certificate
    assert base64.b64decode(context["key"]) == client.key
