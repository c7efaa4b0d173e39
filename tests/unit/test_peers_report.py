"""The figures and the report of ``make peers``."""

import os
from argparse import Namespace

import pytest
from peers.__main__ import is_bad, programs_of, scenarios
from peers.figures import Exchange, Phase, Run, cpu_seconds, peak_mib
from peers.report import report

from envtest.table import PEERS

CONFIG = Exchange("GET", "/nodes/pve1/qemu/100/config", 200)


@pytest.mark.parametrize(
    "method, path, want",
    [
        ("GET", "/cluster/resources", "GET /cluster/resources"),
        ("GET", "/nodes/pve1/qemu/100/config", "GET /nodes/{node}/qemu/{id}/config"),
        ("GET", "/nodes/a/tasks/UPID:a:1/status", "GET /nodes/{node}/tasks/{id}/status"),
        ("PUT", "/nodes/a/storage/s/content/s:1/x", "PUT /nodes/{node}/storage/s/content/{volume}"),
        ("POST", "/nodes/a/storage/s/content", "POST /nodes/{node}/storage/s/content"),
    ],
)  # fmt: skip
def test_an_operation_has_no_names(method: str, path: str, want: str) -> None:
    assert Exchange(method, path, 200).operation == want


def run_of(*exchanges: Exchange) -> Run:
    return Run("nodes", "ccm", [Phase("create 2", 2, 3.0, exchanges, 0.5)], 61.0)


def test_a_row_counts_requests_writes_and_errors() -> None:
    refused = Exchange("POST", "/nodes/pve1/qemu/100/config", 500)
    text = report([run_of(CONFIG, CONFIG, refused)])
    assert "| nodes | ccm | create 2 | 3 | 1.5 | 1 | 3.0 | 0.50 | 61 | 1 × 500 |" in text
    assert "2 GET /nodes/{node}/qemu/{id}/config" in text
    assert "left behind: nothing" in text


def test_an_answer_501_is_named_and_fails() -> None:
    run = run_of(CONFIG, Exchange("GET", "/cluster/ha/rules", 501))
    assert run.unimplemented == ("GET /cluster/ha/rules",)
    assert "answered with 501: GET /cluster/ha/rules" in report([run])
    assert is_bad(run)
    assert not is_bad(run_of(CONFIG))


def test_leftovers_and_repeated_calls_are_named() -> None:
    run = run_of(CONFIG)
    run.leftovers, run.repeated_calls = ("north: guest 100",), 3
    text = report([run])
    assert "left behind: north: guest 100" in text
    assert "3 calls had to be repeated" in text


def test_requests_for_a_free_vmid_are_counted() -> None:
    text = report([run_of(CONFIG, *[Exchange("GET", "/cluster/nextid", 200)] * 2)])
    assert "nodes, ccm: 2 × GET /cluster/nextid" in text


def test_each_scenario_has_a_peer_and_each_peer_a_scenario() -> None:
    assert set(programs_of(scenarios(Namespace()))) == {tool.name for tool in PEERS}
    assert programs_of(["autoscaler"]) == ("karpenter-proxmox",)


def test_usage_of_this_process() -> None:
    assert cpu_seconds(os.getpid()) > 0
    assert peak_mib(os.getpid()) > 1
