"""
Plays a case on one server.

In: a :class:`~apisuite.case.Case` and a :class:`~apisuite.server.Server`. Out: one observation per
step, already normalised, ready to be compared with those of another server. Every case gets a
namespace of its own.
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
from apisuite.case import Ask, Case, Define, Kubectl, Settle, Step, Watch
from apisuite.normal import Normal
from apisuite.server import Answer, Server

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_WORD = re.compile(r"\$([a-z]\w*)")
KLOG = re.compile(r"^[IWE]\d{4} ")  # what the client logs of its own; depends on the load


class Player:
    """One case on one server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        mark = secrets.token_hex(4)
        self._known = {"ns": f"conform-{mark}", "u": f"u{mark}"}
        self._normal = Normal({f"conform-{mark}": "NS", f"u{mark}": "U", server.url: "URL"})
        self._normal.name(server.url.removeprefix("https://"), "HOST")

    def play(self, case: Case) -> list[Any]:
        self._quiet("POST", "/api/v1/namespaces", {"metadata": {"name": self._known["ns"]}})
        try:
            return [self._one(step) for step in case.steps]
        finally:
            self._clean(case)

    def _clean(self, case: Case) -> None:
        """Namespaces end with the server; many CRDs would slow every later discovery."""
        for step in case.steps:
            if isinstance(step, Ask) and step.path.split("?")[0] == CRDS:
                name = self._filled(step.body["metadata"]["name"])
                self._quiet("DELETE", f"{CRDS}/{name}", None)

    def _quiet(self, method: str, path: str, body: Any) -> None:
        self._server.send(method, path, "admin", body, {})

    def _one(self, step: Step) -> Any:
        if isinstance(step, Ask):
            return self._ask(step)
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
        self._known["u"] = mark
        self._normal.name(mark, "U")
        if mark in self._server.defined:
            return
        body = self._filled_body(step.body)
        made = self._server.send("POST", CRDS, "admin", body, {})
        serving = Ask(method="GET", path=step.serves, until=("status", 200), show="status")
        if self._ask(serving) != {"status": 200}:
            raise AssertionError(f"a definition does not serve: {str(made.body)[:2000]}")
        self._server.defined.add(mark)

    # -- requests ------------------------------------------------------------------------------
    def _ask(self, ask: Ask) -> Any:
        answer = self._sent_until(ask)
        self._save(ask, answer)
        return self._shown(ask, answer)

    def _settle(self, ask: Ask) -> None:
        answer = self._sent_until(ask)
        if ask.until and not _holds(answer, *ask.until):
            raise AssertionError(f"the server did not settle on {ask.until}: {answer}")

    def _sent_until(self, ask: Ask) -> Answer:
        answer = self._sent(ask)
        deadline = time.monotonic() + self._server.patience_seconds
        while ask.until and not _holds(answer, *ask.until) and time.monotonic() < deadline:
            time.sleep(0.1)
            answer = self._sent(ask)
        return answer

    def _sent(self, ask: Ask) -> Answer:
        headers = {k: self._filled(v) for k, v in ask.headers.items()}
        body = self._filled_body(ask.body)
        return self._server.send(ask.method, self._filled(ask.path), ask.who, body, headers)

    def _save(self, ask: Ask, answer: Answer) -> None:
        for word, path in ask.save.items():
            self._known[word] = str(paths.find(answer.body, path))
            if word.startswith("token"):
                self._server.login(word, self._known[word])
                self._normal.name(self._known[word], "TOKEN")

    def _shown(self, ask: Ask, answer: Answer) -> Any:
        if ask.show == "nothing":
            return None
        if ask.show == "status":
            return {"status": answer.status}
        body = self._normal.body(_trimmed(answer.body, ask.drop))
        if ask.only:
            body = {path: paths.find(body, path) for path in ask.only}
        warnings = [self._normal.text(w) for w in answer.warnings]
        return {"status": answer.status, "type": answer.kind, "warnings": warnings, "body": body}

    # -- watches -------------------------------------------------------------------------------
    def _watch(self, watch: Watch) -> Any:
        seen: list[Any] = []
        with self._server.stream(self._filled(watch.path), watch.headers) as lines:
            for ask in watch.during:
                self._ask(ask)
            seen.extend(_taken(lines, watch.events))
        return [self._normal.body(_trimmed(event, watch.drop)) for event in seen]

    # -- commands ------------------------------------------------------------------------------
    def _command(self, step: Kubectl) -> Any:
        args = tuple(self._filled(a) for a in step.args)
        stdin = None if step.stdin is None else self._filled(step.stdin)
        done = self._server.kubectl(("-n", self._known["ns"], *args), stdin)
        deadline = time.monotonic() + self._server.patience_seconds
        while step.until and step.until not in done.stdout and time.monotonic() < deadline:
            time.sleep(0.2)
            done = self._server.kubectl(("-n", self._known["ns"], *args), stdin)
        if step.show == "nothing":
            return None
        if step.show == "code":
            return {"code": done.returncode}
        lines = self._normal.printed(done.stderr).splitlines()
        err = [line for line in lines if not KLOG.match(line)]
        return {"code": done.returncode, "out": self._printed(step, done.stdout), "err": err}

    def _printed(self, step: Kubectl, text: str) -> Any:
        """JSON as JSON, for the order of its keys says nothing; else lines."""
        if text.startswith("{"):
            try:
                return self._normal.body(json.loads(text))
            except ValueError:
                pass
        lines = self._normal.printed(text).splitlines()
        return sorted(lines) if step.sort else lines

    # -- filling in ----------------------------------------------------------------------------
    def _filled(self, text: str) -> str:
        return _WORD.sub(lambda m: self._known.get(m[1], m[0]), text)

    def _filled_body(self, body: Any) -> Any:
        if body is None or isinstance(body, str):
            return body and self._filled(body)
        return json.loads(self._filled(json.dumps(body)))


def _taken(lines: Iterator[Any], count: int) -> Iterator[Any]:
    """The first ``count`` lines, or a word about why there were fewer."""
    try:
        yield from itertools.islice(lines, count)
    except requests.RequestException:
        yield "NOTHING MORE CAME"


def _holds(answer: Answer, path: str, wanted: Any) -> bool:
    if path == "status":
        return bool(answer.status == wanted)
    return bool(paths.find(answer.body, path) == wanted)


def _trimmed(body: Any, drop: tuple[str, ...]) -> Any:
    for path in drop:
        body = paths.without(body, path)
    return body
