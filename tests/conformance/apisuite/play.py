"""
Plays a case on one server.

Returns one normalized observation per step, to compare with another server's. Every case gets its
own namespace.
"""

import hashlib
import itertools
import json
import re
import secrets
import time
from collections.abc import Iterator
from typing import Any

import requests

from apisuite import paths
from apisuite.case import ApiRequest, Case, Define, Kubectl, Settle, Step, Watch
from apisuite.normal import Normal
from apisuite.server import ApiResponse, Server

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_WORD = re.compile(r"\$([a-z]\w*)")
KLOG = re.compile(r"^[IWE]\d{4} ")  # client log lines, which depend on the load


class Player:
    """Plays one case on one server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        mark = secrets.token_hex(4)
        self._words = {"ns": f"conform-{mark}", "u": f"u{mark}"}
        self._normal = Normal({f"conform-{mark}": "NS", f"u{mark}": "U", server.url: "URL"})
        self._normal.name(server.url.removeprefix("https://"), "HOST")

    def play(self, case: Case) -> list[Any]:
        self._setup_request("POST", "/api/v1/namespaces", {"metadata": {"name": self._words["ns"]}})
        try:
            return [self._one(step) for step in case.steps]
        finally:
            self._delete_crds(case)

    def _delete_crds(self, case: Case) -> None:
        """Delete the case's CRDs, because many CRDs slow discovery; namespaces stay."""
        for step in case.steps:
            if isinstance(step, ApiRequest) and step.path.split("?")[0] == CRDS:
                name = self._substitute(step.body["metadata"]["name"])
                self._setup_request("DELETE", f"{CRDS}/{name}", None)

    def _setup_request(self, method: str, path: str, body: Any) -> None:
        self._server.send(method, path, "admin", body, {})

    def _one(self, step: Step) -> Any:
        if isinstance(step, ApiRequest):
            return self._send(step)
        if isinstance(step, Watch):
            return self._watch(step)
        if isinstance(step, Define):
            return self._define(step)
        if isinstance(step, Settle):
            return self._settle(step.request)
        return self._command(step)

    def _define(self, step: Define) -> None:
        text = json.dumps(step.body, sort_keys=True)
        mark = f"s{hashlib.sha256(text.encode()).hexdigest()[:8]}"
        self._words["u"] = mark
        self._normal.name(mark, "U")
        if mark in self._server.defined:
            return
        body = self._substitute_body(step.body)
        made = self._server.send("POST", CRDS, "admin", body, {})
        serving = ApiRequest(method="GET", path=step.serves, until=("status", 200), show="status")
        if self._send(serving) != {"status": 200}:
            raise AssertionError(f"a definition does not serve: {str(made.body)[:2000]}")
        self._server.defined.add(mark)

    # requests
    def _send(self, request: ApiRequest) -> Any:
        response = self._send_until(request)
        self._save(request, response)
        return self._observe(request, response)

    def _settle(self, request: ApiRequest) -> None:
        response = self._send_until(request)
        if request.until and not _holds(response, *request.until):
            raise AssertionError(f"the server did not settle on {request.until}: {response}")

    def _send_until(self, request: ApiRequest) -> ApiResponse:
        response = self._send_once(request)
        deadline = time.monotonic() + self._server.patience_seconds
        while (
            request.until and not _holds(response, *request.until) and time.monotonic() < deadline
        ):
            time.sleep(0.1)
            response = self._send_once(request)
        return response

    def _send_once(self, request: ApiRequest) -> ApiResponse:
        headers = {k: self._substitute(v) for k, v in request.headers.items()}
        body = self._substitute_body(request.body)
        return self._server.send(
            request.method, self._substitute(request.path), request.who, body, headers
        )

    def _save(self, request: ApiRequest, response: ApiResponse) -> None:
        for word, path in request.save.items():
            self._words[word] = str(paths.find(response.body, path))
            if word.startswith("token"):
                self._server.login(word, self._words[word])
                self._normal.name(self._words[word], "TOKEN")

    def _observe(self, request: ApiRequest, response: ApiResponse) -> Any:
        if request.show == "nothing":
            return None
        if request.show == "status":
            return {"status": response.status}
        body = self._normal.body(_without_paths(response.body, request.drop))
        if request.only:
            body = {path: paths.find(body, path) for path in request.only}
        warnings = [self._normal.text(w) for w in response.warnings]
        return {
            "status": response.status,
            "type": response.kind,
            "warnings": warnings,
            "body": body,
        }

    # watches
    def _watch(self, watch: Watch) -> Any:
        seen: list[Any] = []
        with self._server.stream(self._substitute(watch.path), watch.headers) as lines:
            for request in watch.during:
                self._send(request)
            seen.extend(_first_lines(lines, watch.events))
        return [self._normal.body(_without_paths(event, watch.drop)) for event in seen]

    # commands
    def _command(self, step: Kubectl) -> Any:
        args = tuple(self._substitute(a) for a in step.args)
        stdin = None if step.stdin is None else self._substitute(step.stdin)
        done = self._server.kubectl(("-n", self._words["ns"], *args), stdin)
        deadline = time.monotonic() + self._server.patience_seconds
        while step.until and step.until not in done.stdout and time.monotonic() < deadline:
            time.sleep(0.2)
            done = self._server.kubectl(("-n", self._words["ns"], *args), stdin)
        if step.show == "nothing":
            return None
        if step.show == "code":
            return {"code": done.returncode}
        lines = self._normal.printed(done.stderr).splitlines()
        err = [line for line in lines if not KLOG.match(line)]
        return {"code": done.returncode, "out": self._printed(step, done.stdout), "err": err}

    def _printed(self, step: Kubectl, text: str) -> Any:
        """Parse JSON output, because key order is irrelevant; else return lines."""
        if text.startswith("{"):
            try:
                return self._normal.body(json.loads(text))
            except ValueError:
                pass
        lines = self._normal.printed(text).splitlines()
        return sorted(lines) if step.sort else lines

    # substitution
    def _substitute(self, text: str) -> str:
        return _WORD.sub(lambda m: self._words.get(m[1], m[0]), text)

    def _substitute_body(self, body: Any) -> Any:
        if body is None or isinstance(body, str):
            return body and self._substitute(body)
        return json.loads(self._substitute(json.dumps(body)))


def _first_lines(lines: Iterator[Any], count: int) -> Iterator[Any]:
    """Yield the first ``count`` lines, or a marker if the stream ends early."""
    try:
        yield from itertools.islice(lines, count)
    except requests.RequestException:
        yield "NOTHING MORE CAME"


def _holds(response: ApiResponse, path: str, wanted: Any) -> bool:
    if path == "status":
        return bool(response.status == wanted)
    return bool(paths.find(response.body, path) == wanted)


def _without_paths(body: Any, drop: tuple[str, ...]) -> Any:
    for path in drop:
        body = paths.without(body, path)
    return body
