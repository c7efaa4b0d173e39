"""Saving and loading the persistent data of simulated guests."""

import json

from moxwell.api.requests import Handler
from moxwell.kube.kubeconfig import ApiAccess
from moxwell.lab.guests.guest_runner import GuestRunner
from moxwell.testing.loop import LoopClock

PLANE = {
    "host": "127.0.0.1",
    "port": 1,
    "version": "v1",
    "ca": "c",
    "ca_key": "k",
    "service_key": "s",
}
KUBECONFIG = {"node_name": "n", "server": "https://x", "ca": "c", "certificate": "c", "key": "k"}


def dial(access: ApiAccess) -> Handler:
    raise NotImplementedError


def test_data_of_older_versions_is_read() -> None:
    old = {"uuid-1": {"seed": {"user_data": "x"}, "joined": KUBECONFIG, "plane": PLANE}}
    runner = GuestRunner(dial, LoopClock())
    runner.load(json.dumps(old).encode())
    saved = json.loads(runner.save())["uuid-1"]
    assert saved["config_drive"]["user_data"] == "x"
    assert saved["kubeconfig"] == KUBECONFIG
    assert saved["control_plane"]["ca_key"] == "k"
    runner.load(runner.save())
    assert json.loads(runner.save())["uuid-1"] == saved
