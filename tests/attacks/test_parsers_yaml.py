"""
YAML that a user writes into a Secret or an object and that the daemon reads.

It costs its own object only: no program runs, no file is read, nothing recurses or grows, and the
process goes on within milliseconds. The values are counted, so no test depends on a time.
"""

import tracemalloc
from collections.abc import Callable

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from moxwell import yaml_documents
from moxwell.bootstrap import talos, talos_config
from moxwell.errors import Invalid, MoxwellError
from moxwell.kube import kubeconfig, kubeconfig_writer
from moxwell.kube.kubeconfig import BadKubeconfig
from moxwell.pve import config
from moxwell.testing.loop import LoopClock
from moxwell.verify.collector import kubeconfig_validities

GROWING = "a0: &a0 {x: 1, y: 2}\n" + "".join(
    f"a{n}: &a{n} {{x: *a{n - 1}, y: *a{n - 1}}}\n" for n in range(1, 40)
)
HOSTILE = {
    "many values": "a: b\n" * 200_000,
    "many values in one line": f"[{'1,' * 400_000}]",
    "levels of sequences": "- " * 100_000,
    "levels of brackets": "[" * 20_000,
    "levels of mappings": "{a: " * 20_000,
    "aliases of aliases": GROWING,
    "a value that contains itself": "a: &a [*a]",
    "an alias of nothing": "a: *b",
    "a number of 5,000 digits": "a: " + "1" * 5_000,
    "a number that does not exist": "a: !!int 2001-99-99",
    "a key twice": "a: b\na: c",
    "a Python object": "a: !!python/object/apply:os.system [id]",
    "a lone surrogate": "a: \udcff",
    "a control character": "a: \0",
}
READERS: dict[str, Callable[[str], object]] = {
    "credentials of a region": config.parse,
    "kubeconfig": kubeconfig.parse,
    "bootstrap data for Talos": lambda text: talos.merge(text.encode("utf-8", "replace"), "m", "p"),
    "patches for Talos": lambda text: talos_config.patched({}, [text, text]),
}
TOLERANT: dict[str, Callable[[str], object]] = {
    "server of a kubeconfig": kubeconfig_writer.server,
    "CA of a kubeconfig": kubeconfig_writer.authority,
    "certificate of a kubeconfig": kubeconfig_writer.client_certificate,
    "expiries of a kubeconfig": kubeconfig_validities,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_hostile_yaml_is_refused(read: Callable[[str], object], text: str) -> None:
    with pytest.raises(Invalid):
        read(text)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("read", TOLERANT.values(), ids=TOLERANT)
def test_hostile_yaml_contains_nothing(read: Callable[[str], object], text: str) -> None:
    assert not read(text)


def test_refused_yaml_is_never_built() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(yaml.YAMLError):
            yaml_documents.load(HOSTILE["many values in one line"])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(HOSTILE["many values in one line"])


OUTSIDE = {
    "exec": "users: [{name: u, user: {exec: {command: /bin/true}}}]",
    "tokenFile": "users: [{name: u, user: {tokenFile: /etc/hostname}}]",
    "client-certificate": "users: [{name: u, user: {client-certificate: /etc/hostname}}]",
    "client-key": "users: [{name: u, user: {client-key: /etc/hostname}}]",
    "certificate-authority": "clusters: [{name: c, cluster: {certificate-authority: /etc/ca}}]",
}


@pytest.mark.parametrize("field", OUTSIDE)
def test_a_kubeconfig_in_a_secret_runs_no_program_and_reads_no_file(field: str) -> None:
    with pytest.raises(BadKubeconfig, match=f"has {field}: a kubeconfig in a Secret"):
        kubeconfig.parse(OUTSIDE[field]).access(LoopClock(), {})


SECTIONS = {
    "machine": "machine: [1]",
    "kubelet": "machine: {kubelet: text}",
    "extraArgs": "machine: {kubelet: {extraArgs: [1]}}",
    "network": "machine: {network: 3}",
}


@pytest.mark.parametrize("text", SECTIONS.values(), ids=SECTIONS)
def test_a_section_of_another_type_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        talos.merge(text.encode(), "m", "p")


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab:-[]{}&*!? \n'\"|>%#,0", max_size=60))
def test_every_text_is_read_or_refused(text: str) -> None:
    for read in (*READERS.values(), *TOLERANT.values()):
        try:
            read(text)
        except MoxwellError:
            continue
