"""Parsing of the configuration file and of CAPMOX's Secret; errors name the key."""

from pathlib import Path

import pytest

from moxwell.config_file import InvalidConfig
from moxwell.pve import config
from moxwell.pve.config import PasswordAuth, TokenAuth
from moxwell.pve.values import SecretValue

GOOD = """
clusters:
  - region: region-1
    url: https://pve-a.example:8006/api2/json
    token_id: "kubernetes@pve!moxwell"
    token_secret: "s3cret"
    zones: {rack-a: [pve1, pve2]}
"""


def one(text: str) -> config.RegionConfig:
    return config.parse(text)[0]


def test_the_documented_file_is_parsed() -> None:
    region = one(GOOD)
    assert region.region == "region-1"
    assert region.urls == ("https://pve-a.example:8006",)
    assert region.auth == TokenAuth("kubernetes@pve!moxwell", SecretValue("s3cret"))
    assert not region.insecure
    assert region.zone_of("pve2") == "rack-a"
    assert region.zone_of("pve9") == "pve9"
    assert region.hosts_of("rack-a") == ("pve1", "pve2")
    assert region.hosts_of("pve9") == ("pve9",)


def test_nothing_prints_the_secret() -> None:
    assert "s3cret" not in repr(one(GOOD))


def test_several_urls_the_first_preferred_and_none_twice() -> None:
    region = one(
        "clusters: [{region: a, url: 'https://a:8006', urls: ['https://b:8006/', "
        "'https://a:8006/api2/json/'], username: root@pam, password: p}]"
    )
    assert region.urls == ("https://a:8006", "https://b:8006")
    assert region.auth == PasswordAuth("root@pam", SecretValue("p"))


def test_secrets_and_ca_are_read_from_files(tmp_path: Path) -> None:
    (tmp_path / "id").write_text("u@pve!t\n")
    (tmp_path / "secret").write_text("hidden\n")
    (tmp_path / "ca.pem").write_text("PEM")
    (tmp_path / "config.yaml").write_text(
        "clusters: [{region: a, url: https://a, token_id_file: id, token_secret_file: secret, "
        "ca_file: ca.pem, fingerprint: '" + ":".join(["AB"] * 32) + "', concurrency: 3}]"
    )
    (region,) = config.load(tmp_path / "config.yaml")
    assert region.auth == TokenAuth("u@pve!t", SecretValue("hidden"))
    assert (region.ca_pem, region.fingerprint, region.concurrency) == ("PEM", "ab" * 32, 3)


def test_the_features_block_of_upstream_is_accepted() -> None:
    assert one("features: {provider: capmox}\n" + GOOD).region == "region-1"


BLOCK = {"region": "a", "url": "https://a", "token_id": "u@pve!t", "token_secret": "hunter2"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"tokenid": "x"}, "unknown tokenid (did you mean token_id?)", id="a typo"),
        pytest.param({"region": ""}, "region must be", id="no region"),
        pytest.param({"region": "a/b"}, "region must be", id="a region with a slash"),
        pytest.param({"url": ""}, "url or urls is missing", id="no url"),
        pytest.param({"url": "pve:8006"}, "must look like https://", id="no scheme"),
        pytest.param({"url": "https://u:p@a"}, "neither credentials", id="credentials in it"),
        pytest.param({"urls": "https://a"}, "urls must be a list", id="urls is no list"),
        pytest.param({"token_secret": ""}, "are missing", id="no secret"),
        pytest.param({"token_id": "joe"}, "user@realm!name", id="a user as token"),
        pytest.param({"username": "x", "password": "y"}, "not both", id="token and user"),
        pytest.param({"token_secret_file": "f"}, "token_secret or token_secret_file", id="twice"),
        pytest.param({"fingerprint": "ab"}, "SHA-256", id="a short fingerprint"),
        pytest.param({"insecure": "perhaps"}, "insecure must be", id="neither yes nor no"),
        pytest.param({"zones": []}, "", id="empty zones are none"),
        pytest.param({"zones": "x"}, "zones must map", id="zones is a text"),
        pytest.param({"zones": {"z": "pve1"}}, "zones.z must be a list", id="a zone is a text"),
        pytest.param({"zones": {"a": ["h"], "b": ["h"]}}, "h is in two zones", id="two zones"),
        pytest.param({"ca_file": "/nonexistent/ca"}, "cannot read /nonexistent/ca", id="no CA"),
        pytest.param({"concurrency": 0}, "concurrency must be", id="no concurrency"),
        pytest.param({"region": ["x"]}, "region must be a text", id="a list as text"),
    ],
)
def test_an_error_names_the_wrong_key(change: dict[str, object], message: str) -> None:
    import yaml

    text = yaml.safe_dump({"clusters": [{**BLOCK, **change}]})
    if not message:
        assert config.parse(text)
        return
    with pytest.raises(InvalidConfig, match=r"clusters\[0\]|cannot read") as caught:
        config.parse(text)
    assert message in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must be a mapping"),
        ("clusters: []", "at least one"),
        ("clusters: {}", "at least one"),
        ("clusters: [x]", "clusters[0]: must be a mapping"),
        ("cluster: []", "unknown cluster"),
        ("a: [", "not YAML in line"),
    ],
)
def test_a_file_without_configuration_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        config.parse(text)
    assert message in str(caught.value)


def test_a_duplicate_region_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="'region-1' is configured twice"):
        config.parse(GOOD + GOOD.replace("clusters:\n", "").replace("\nclusters:", ""))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="cannot read"):
        config.load(tmp_path / "none.yaml")


def test_a_capmox_secret_is_parsed() -> None:
    region = config.from_secret(
        "a", {"url": "https://a:8006", "token": "u@pve!t", "secret": "x", "root_ca": "PEM"}
    )
    assert (region.region, region.ca_pem, region.insecure) == ("a", "PEM", False)
    assert region.auth == TokenAuth("u@pve!t", SecretValue("x"))


@pytest.mark.parametrize(
    ("word", "insecure"), [("1", True), ("yes", True), ("true", True), ("", False), ("no", False)]
)
def test_tls_is_verified_unless_insecure_is_set(word: str, insecure: bool) -> None:
    data = {"url": "https://a", "token": "u@pve!t", "secret": "x", "insecure": word}
    assert config.from_secret("a", data).insecure is insecure


def test_an_unknown_key_in_a_secret_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="secret of region a: unknown passwort"):
        config.from_secret("a", {"url": "https://a", "passwort": "x"})
