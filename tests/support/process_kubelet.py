"""
A node that runs the containers of its pods as processes of this machine, and a load balancer.

Volumes of Secrets and ConfigMaps become files below a folder of the pod; paths in arguments are
rewritten to it. A pod is Ready when its first container answers ``/readyz``. Services of the type
LoadBalancer get the address of this machine.
"""

import base64
import json
import shutil
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from envtest.control_plane import ControlPlane
from envtest.process import Process
from support.pod_process import answers

Json = dict[str, Any]
NODE = "processes"
PAUSE_SECONDS = 0.5


class ProcessKubelet:
    """Runs until stopped; ``programs`` are the programs of commands."""

    def __init__(self, plane: ControlPlane, address: str, programs: Mapping[str, Path]) -> None:
        self._plane, self._address, self._programs = plane, address, dict(programs)
        self._running: dict[str, list[Process]] = {}
        self._ready: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.problems: list[str] = []

    def __enter__(self) -> "ProcessKubelet":
        limits = {"cpu": "64", "memory": "256Gi", "pods": "110"}
        ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": ""}
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": NODE, "labels": {"kubernetes.io/os": "linux"}},
            "status": {"capacity": limits, "allocatable": limits, "conditions": [ready]},
        }
        status, body = self._plane.request("POST", "/api/v1/nodes", node)
        assert status == 201, body
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        for uid in list(self._running):
            self._end(uid)

    def _run(self) -> None:
        while not self._stop.wait(PAUSE_SECONDS):
            try:
                self._pass()
            except (OSError, ValueError, KeyError, AssertionError) as error:
                self.problems.append(f"{type(error).__name__}: {error}")

    def _pass(self) -> None:
        pods = self._list("/api/v1/pods")
        for pod in (p for p in pods if p["spec"].get("nodeName") == NODE):
            uid = pod["metadata"]["uid"]
            if "deletionTimestamp" in pod["metadata"]:
                self._end(uid)
                self._delete(pod)
            elif uid not in self._running:
                self._running[uid] = [self._start(pod, c) for c in pod["spec"]["containers"]]
            elif uid not in self._ready and self._answers(pod):
                self._say_ready(pod)
                self._ready.add(uid)
        for uid in set(self._running) - {p["metadata"]["uid"] for p in pods}:
            self._end(uid)
        for service in self._list("/api/v1/services"):
            self._balance(service)

    def _list(self, path: str) -> list[Json]:
        status, body = self._plane.request("GET", path)
        assert status == 200, body
        found: list[Json] = body["items"]
        return found

    def _root(self, pod: Json) -> Path:
        return self._plane.folder / "pods" / str(pod["metadata"]["uid"])

    def _start(self, pod: Json, container: Json) -> Process:
        root = self._root(pod)
        volumes = {v["name"]: v for v in pod["spec"].get("volumes", ())}
        for mount in container.get("volumeMounts", ()):
            folder = root / mount["mountPath"].lstrip("/")
            for path, data in self._files(volumes[mount["name"]], pod["metadata"]["namespace"]):
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(data)
        command = [*container.get("command", ()), *container.get("args", ())]
        words = [w.replace("=/etc/kubernetes", f"={root}/etc/kubernetes") for w in command[1:]]
        name = f"{pod['metadata']['name']}.{container['name']}"
        return self._plane.run(name, self._programs[command[0]], *words)

    def _files(self, volume: Json, space: str) -> Iterator[tuple[str, bytes]]:
        sources = volume.get("projected", {}).get("sources", ())
        if "secret" in volume:
            secret = volume["secret"]
            sources = [{"secret": {"name": secret["secretName"], "items": secret.get("items")}}]
        if "configMap" in volume:
            sources = [volume]
        for source in sources:
            (kind, found), *_ = source.items()
            if kind in ("secret", "configMap"):
                yield from self._entries(kind, found, space)

    def _entries(self, kind: str, source: Json, space: str) -> Iterator[tuple[str, bytes]]:
        path = f"/api/v1/namespaces/{space}/{kind.lower()}s/{source['name']}"
        status, body = self._plane.request("GET", path)
        assert status == 200, f"{source['name']}: {status}"
        data = body.get("data") or {}
        items = source.get("items") or [{"key": key, "path": key} for key in data]
        for item in items:
            text = data[item["key"]]
            yield item["path"], base64.b64decode(text) if kind == "secret" else text.encode()

    def _answers(self, pod: Json) -> bool:
        port = next(
            word.partition("=")[2]
            for container in pod["spec"]["containers"]
            for word in container.get("args", ())
            if word.startswith("--secure-port=")
        )
        return answers(f"https://{self._address}:{port}/readyz")

    def _say_ready(self, pod: Json) -> None:
        started = {"state": {"running": {}}, "ready": True, "started": True, "restartCount": 0}
        rows = [
            {"name": c["name"], "image": c["image"], "imageID": "process", **started}
            for c in pod["spec"]["containers"]
        ]
        types = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        status = {
            "phase": "Running",
            "podIP": self._address,
            "conditions": [{"type": t, "status": "True"} for t in types],
            "containerStatuses": rows,
        }
        self._patch_status("pod", pod, status)

    def _balance(self, service: Json) -> None:
        if service["spec"].get("type") != "LoadBalancer":
            return
        if not service["status"].get("loadBalancer", {}).get("ingress"):
            status = {"loadBalancer": {"ingress": [{"ip": self._address}]}}
            self._patch_status("service", service, status)

    def _patch_status(self, kind: str, obj: Json, status: Json) -> None:
        meta, patch = obj["metadata"], json.dumps({"status": status})
        words = ("--subresource=status", "--type=merge", "-p", patch)
        self._plane.kubectl("patch", kind, meta["name"], "-n", meta["namespace"], *words)

    def _delete(self, pod: Json) -> None:
        meta = pod["metadata"]
        words = ("--force", "--grace-period=0", "--ignore-not-found", "--wait=false")
        self._plane.kubectl("delete", "pod", meta["name"], "-n", meta["namespace"], *words)

    def _end(self, uid: str) -> None:
        for process in reversed(self._running.pop(uid, [])):
            process.stop()
        shutil.rmtree(self._plane.folder / "pods" / uid, ignore_errors=True)
