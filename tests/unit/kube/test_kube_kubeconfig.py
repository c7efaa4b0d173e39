"""Kubeconfigs: what kubectl would make of the same files."""

import base64
from pathlib import Path

import pytest
import yaml

from moxwell.clock import SystemClock
from moxwell.kube import credentials, kubeconfig
from moxwell.kube.credentials import ApiIdentity, SecretText, StaticCredentials
from moxwell.kube.kubeconfig import BadKubeconfig, Kubeconfig, NoKubeconfig

CLOCK = SystemClock()


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def config(user: object = None, cluster: object = None, **more: object) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "clusters": [{"name": "c", "cluster": cluster or {"server": "https://a:6443/"}}],
            "users": [{"name": "u", "user": user or {}}],
            "contexts": [
                {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "n"}},
                {"name": "bare", "context": {"cluster": "c"}},
                {"name": "lost", "context": {"cluster": "gone"}},
                {"name": "whom", "context": {"cluster": "c", "user": "gone"}},
            ],
            **more,
        }
    )


def in_folder(folder: Path, text: str) -> Kubeconfig:
    file = folder / "config"
    file.write_text(text)
    return kubeconfig.load([file])


async def identity(text: str, home: Path | None = None) -> ApiIdentity:
    access = (in_folder(home, text) if home else kubeconfig.parse(text)).access(CLOCK, {})
    return await access.credentials.identity()


def test_the_current_context_is_taken() -> None:
    access = kubeconfig.parse(config()).access(CLOCK, {})
    assert (access.server, access.namespace, access.insecure) == ("https://a:6443", "n", False)


def test_a_named_context_is_taken_instead() -> None:
    access = kubeconfig.parse(config()).access(CLOCK, {}, "bare")
    assert access.namespace == "default"
    assert access.credentials == StaticCredentials()


@pytest.mark.parametrize(
    "context, message",
    [
        pytest.param("nope", "no context 'nope'; it has: bare, here", id="context"),
        pytest.param("lost", "no cluster 'gone'; it has: c", id="cluster"),
        pytest.param("whom", "no user 'gone'; it has: u", id="user"),
    ],
)
def test_what_is_missing_is_named(context: str, message: str) -> None:
    with pytest.raises(NoKubeconfig, match=message):
        kubeconfig.parse(config()).access(CLOCK, {}, context)


async def test_a_token_becomes_a_header() -> None:
    assert (await identity(config({"token": "t0p\n"}))).authorization == SecretText("Bearer t0p")


async def test_a_password_becomes_a_header() -> None:
    found = await identity(config({"username": "a", "password": "b"}))
    assert found.authorization == SecretText("Basic YTpi")


async def test_certificates_inline() -> None:
    user = {"client-certificate-data": encoded("CERT"), "client-key-data": encoded("KEY")}
    assert await identity(config(user)) == ApiIdentity(SecretText(""), "CERT", SecretText("KEY"))


async def test_files_count_from_the_folder_of_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "pki").mkdir()
    for name in ("ca", "crt", "key"):
        (tmp_path / "pki" / name).write_text(name.upper())
    user = {"client-certificate": "pki/crt", "client-key": "pki/key"}
    cluster = {"server": "https://a", "certificate-authority": "pki/ca"}
    (tmp_path / "config").write_text(config(user, cluster))
    access = kubeconfig.load([tmp_path / "config"]).access(CLOCK, {})
    assert access.ca == "CA"
    assert await access.credentials.identity() == ApiIdentity(
        SecretText(""), "CRT", SecretText("KEY")
    )


def test_the_first_file_that_names_something_wins(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text(config(cluster={"server": "https://one"}))
    two.write_text(config(cluster={"server": "https://two"}, **{"current-context": "bare"}))
    both = kubeconfig.load([tmp_path / "absent", one, two])
    assert both.access(CLOCK, {}).server == "https://one"
    assert both.current == "here"


def test_server_name_proxy_and_insecure_are_read() -> None:
    cluster = {
        "server": "https://a",
        "tls-server-name": "kube",
        "proxy-url": "http://p:1",
        "insecure-skip-tls-verify": True,
    }
    access = kubeconfig.parse(config(cluster=cluster)).access(CLOCK, {})
    assert (access.server_name, access.proxy, access.insecure) == ("kube", "http://p:1", True)


@pytest.mark.parametrize(
    "text, message",
    [
        pytest.param("a: [", "not YAML in line", id="no YAML"),
        pytest.param("clusters: 3", "not a kubeconfig: Expected `array", id="another shape"),
        pytest.param(config(cluster={"server": ""}), "has no server", id="no server"),
        pytest.param(
            config(
                {"client-key-data": "%", "client-certificate-data": encoded("\udcff" * 0) or "/w=="}
            ),
            "not base64",
            id="no base64",
        ),
    ],
)
def test_a_bad_kubeconfig_is_explained(text: str, message: str) -> None:
    with pytest.raises(BadKubeconfig, match=message):
        kubeconfig.parse(text).access(CLOCK, {})


def test_a_missing_file_is_explained(tmp_path: Path) -> None:
    with pytest.raises(BadKubeconfig, match=r"cannot read .*/absent"):
        in_folder(tmp_path, config({"client-certificate": "absent"})).access(CLOCK, {})


def test_nulls_are_empty() -> None:
    with pytest.raises(NoKubeconfig, match="no current context"):
        kubeconfig.parse("clusters: null\nusers: null\ncontexts: null").access(CLOCK, {})


def test_a_kubeconfig_does_not_show_its_secrets() -> None:
    text = config({"token": "t0p", "client-key-data": encoded("KEY")})
    found = kubeconfig.parse(text)
    shown = repr(found) + repr(found.access(CLOCK, {}))
    assert "t0p" not in shown
    assert "KEY" not in shown


def pod(folder: Path) -> Path:
    for name, text in {"token": "t1", "ca.crt": "CA", "namespace": "mine\n"}.items():
        (folder / name).write_text(text)
    return folder


async def test_a_pod_finds_its_cluster(tmp_path: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    access = kubeconfig.in_cluster(CLOCK, environ, pod(tmp_path))
    assert (access.server, access.namespace, access.ca) == ("https://[fd00::1]:443", "mine", "CA")
    assert (await access.credentials.identity()).authorization == SecretText("Bearer t1")


def test_what_is_no_pod_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(NoKubeconfig, match="not a pod"):
        kubeconfig.in_cluster(CLOCK, {}, tmp_path)


def test_looking_goes_from_the_path_to_the_variable_to_the_home(tmp_path: Path) -> None:
    for name in ("given", "variable", "home/.kube/config"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(config(cluster={"server": f"https://{path.name}"}))
    environ = {"KUBECONFIG": f"/absent:{tmp_path}/variable", "HOME": f"{tmp_path}/home"}
    assert kubeconfig.find(CLOCK, environ, f"{tmp_path}/given").server == "https://given"
    assert kubeconfig.find(CLOCK, environ).server == "https://variable"
    del environ["KUBECONFIG"]
    assert kubeconfig.find(CLOCK, environ).server == "https://config"
    with pytest.raises(NoKubeconfig, match="no kubeconfig at"):
        kubeconfig.find(CLOCK, {"HOME": str(tmp_path)})


def test_an_exec_plugin_gets_its_arguments_and_environment(tmp_path: Path) -> None:
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "./login",
        "args": ["a"],
        "env": [{"name": "X", "value": "1"}],
        "installHint": "get it",
        "provideClusterInfo": True,
    }
    found = in_folder(tmp_path, config({"exec": plugin})).access(CLOCK, {"PATH": "/p"})
    assert isinstance(found.credentials, credentials.ExecCredentials)
