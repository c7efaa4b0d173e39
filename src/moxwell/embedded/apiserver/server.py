"""
The store: requests in, responses out. Framework-neutral; ``http.py`` puts it on a socket.

``handle`` understands the request, asks the authorizer, lets the verbs stage what they stage,
waits for the commit, and renders. A request without a user comes from this very process and may
do everything; whoever serves strangers must prove users first.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from moxwell.api import requests
from moxwell.clock import Clock, SystemClock
from moxwell.embedded.apiserver import deleter, request_body, request_info, status_errors
from moxwell.embedded.apiserver.admission_defaults import Filling
from moxwell.embedded.apiserver.auth.ca import SigningKey, new_key
from moxwell.embedded.apiserver.auth.rbac import Authorizer
from moxwell.embedded.apiserver.auth.reviews import Reviews
from moxwell.embedded.apiserver.auth.tokens import Tokens
from moxwell.embedded.apiserver.background import Collector
from moxwell.embedded.apiserver.builtin import model
from moxwell.embedded.apiserver.commits import Commits
from moxwell.embedded.apiserver.core import Core
from moxwell.embedded.apiserver.crd.definitions import Definitions
from moxwell.embedded.apiserver.deleter import Remover
from moxwell.embedded.apiserver.discovery import Discovery
from moxwell.embedded.apiserver.hooks import Hooks
from moxwell.embedded.apiserver.object_cache import Change, Record, State, encode
from moxwell.embedded.apiserver.openapi import OpenApi
from moxwell.embedded.apiserver.patcher import Patcher
from moxwell.embedded.apiserver.protobuf import Protobuf
from moxwell.embedded.apiserver.quota.admission import Rations
from moxwell.embedded.apiserver.reader import Reader
from moxwell.embedded.apiserver.representations import AnyForm, choose
from moxwell.embedded.apiserver.request_info import Call
from moxwell.embedded.apiserver.resources import Registry
from moxwell.embedded.apiserver.revision_log import RevisionLog
from moxwell.embedded.apiserver.subresources import Subresources
from moxwell.embedded.apiserver.watches import Feeds
from moxwell.embedded.apiserver.writer import STATUS_LIKE, Outcome, Writer

Object = dict[str, Any]
VERSION = "v1.36.3"
JSON_HEADERS: Mapping[str, str] = {"content-type": "application/json"}

READS = ("get", "list", "watch")


class Store:
    """An embedded Kubernetes API. ``path=None`` keeps everything in memory."""

    def __init__(
        self,
        *,
        path: Path | None = None,
        clock: Clock | None = None,
        hooks: Hooks | None = None,
        max_pages: int | None = None,
        root_ca: str = "",
        token_key: SigningKey | None = None,
        version: str = VERSION,
    ) -> None:
        self._clock = clock or SystemClock()
        self._version = version
        self._log = RevisionLog(path, max_pages=max_pages) if path is not None else None
        state = State()
        feeds = Feeds(self._clock, lambda: state.revision)
        commits = Commits(state, self._log, self._published)
        self.core = Core(
            state, commits, feeds, Registry(), self._clock, hooks or Hooks(), model.Tables()
        )
        self.tokens = Tokens(token_key or new_key(), state, self._clock)
        self._build(root_ca)

    def _build(self, root_ca: str) -> None:
        core = self.core
        core.registry.put(model.faces(core.tables))
        self._own_groups = frozenset(face.group for face in core.registry)
        self._reader = Reader(core.state, core.feeds)
        self._writer = Writer(core)
        self._remover = Remover(core, self._writer)
        self._patcher = Patcher(core, self._writer)
        self._protobuf = Protobuf(core.tables)
        self._definitions = Definitions(core)
        self._discovery = Discovery(core.registry)
        self._openapi = OpenApi(core.registry, core.tables)
        self.authorizer = Authorizer(core.state)
        self._writer.guard = self.authorizer.check_grant
        self._writer.fill = Filling(core).fill
        rations = Rations(core)
        self._writer.default, self._writer.ration = rations.default, rations.check
        self._subresources = Subresources(
            core,
            self._writer,
            self._patcher,
            self._remover,
            Reviews(self.authorizer, self.tokens),
            self.tokens,
        )
        self._collector = Collector(core, self._remover, root_ca)

    # -- life

    async def start(self) -> None:
        """Read the log, serve the custom kinds in it, make what every cluster has."""
        if self._log is not None:
            self._load(self._log)
        self._definitions.load()
        await self._collector.start()

    def _load(self, log: RevisionLog) -> None:
        core = self.core
        core.feeds.start(log.floor())
        last: dict[tuple[str, str], Record] = {}
        for row in log.read():
            record = Record(row.store, row.revision, row.body)
            place = (row.store, row.key)
            change = Change(record, last.get(place), deleted=row.deleted)
            core.state.load(change)
            if row.revision > log.floor():
                core.feeds.feed(row.store).remember(change)
            if row.deleted:
                last.pop(place, None)
            else:
                last[place] = record

    async def stop(self) -> None:
        """End watches, finish commits, close the file."""
        await self._collector.stop()
        self.core.feeds.end()
        await self.core.commits.close()

    async def __aenter__(self) -> "Store":
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    def recall(self, name: str, otherwise: bytes) -> bytes:
        """A named value kept with the data (keys of the CA, for instance); memory stores forget."""
        return self._log.recall(name, otherwise) if self._log is not None else otherwise

    def _published(self, change: Change) -> None:
        self._definitions.changed(change)
        self.authorizer.changed(change)
        self.core.feeds.publish(change)
        self._collector.changed(change)

    # -- requests

    async def handle(self, request: requests.Request) -> requests.Response:
        """Answer one request; never raises for what the caller did wrong."""
        try:
            return await self._answer(request)
        except status_errors.Refused as refused:
            return status_response(refused)

    async def _answer(self, request: requests.Request) -> requests.Response:
        if any(name.startswith("impersonate-") for name in request.headers):
            raise status_errors.forbidden_path("the embedded API does not allow impersonation")
        target = request_info.target(request.path)
        if target is None:
            self.authorizer.check_path(request)
            return self._elsewhere(request)
        call = self._call(request, target)
        self.authorizer.check(call)
        try:
            return await self._serve(call)
        except status_errors.Refused as refused:
            refused.warnings = tuple(call.warnings)
            if call.verb not in READS:  # what it was refused for must be there to be read
                await self.core.commits.settle()
            raise

    def _elsewhere(self, request: requests.Request) -> requests.Response:
        """Discovery, schemas, health."""
        path = request.path.rstrip("/") or "/"
        if request.method not in ("GET", "HEAD"):
            raise status_errors.method_not_allowed()
        if path.split("/")[1] in ("healthz", "livez", "readyz"):
            return requests.Response(status=200, headers={"content-type": "text/plain"}, body=b"ok")
        if path == "/version":
            return json_response(200, version_info(self._version))
        found = self._discovery.answer(request) or self._openapi.answer(request)
        if found is None:
            parts = path.split("/")
            raise self._nothing(
                parts[2]
                if parts[1] == "apis" and len(parts) > 3
                else ""
                if parts[1] == "api"
                else "?"
            )
        return found

    def _call(self, request: requests.Request, target: request_info.Target) -> Call:
        face = self.core.registry.find(target.group, target.version, target.plural)
        if face is None:
            raise self._nothing(target.group)
        query = dict(reversed(request.query))
        watch = query.get("watch", "") in request_info.TRUE and not target.name
        verb = request_info.verb_of(request, bool(target.name), watch)
        if verb == "create" and target.name and not target.sub:
            raise status_errors.method_not_allowed()
        if face.namespaced and not target.namespace and (verb != "list" and verb != "watch"):
            raise (
                status_errors.method_not_allowed()
                if not target.name
                else status_errors.no_such_path()
            )
        if not face.namespaced and target.namespace and face.plural != "namespaces":
            raise self._nothing(target.group)
        return Call(
            request=request,
            face=face,
            verb=verb,
            namespace=target.namespace,
            name=target.name,
            sub=target.sub,
            user=request.user or request_info.ADMIN,
            query=query,
        )

    def _nothing(self, group: str) -> status_errors.Refused:
        """Groups of custom kinds answer unknown paths more plainly than built-in ones."""
        return (
            status_errors.no_such_path() if group in self._own_groups else status_errors.no_page()
        )

    async def _serve(self, call: Call) -> requests.Response:
        special = call.sub or call.face.verbs == ("create",)
        if special and (call.sub not in STATUS_LIKE or not call.face.status):
            return await self._serve_sub(call)
        if call.verb not in call.face.verbs:
            raise status_errors.method_not_allowed()
        if call.face.deprecated:
            call.warnings.append(call.face.deprecated)
        include = call.query.get("includeObject", "")
        accept = call.request.headers.get("accept", "")
        form = choose(accept, call.face, include, self.core.now())
        match call.verb:
            case "get":
                return self._whole(call, 200, self._reader.get(call, form))
            case "list":
                return self._whole(call, 200, self._reader.list(call, form))
            case "watch":
                chunks = self._reader.watch(call, form)
                return requests.Response(status=200, headers=self._headers(call), chunks=chunks)
            case "delete" | "deletecollection":
                return await self._delete(call, form)
        return await self._write(call, form)

    async def _write(self, call: Call, form: AnyForm) -> requests.Response:
        outcome = self._written(call)
        if outcome.record is not None or not call.dry_run:
            await self.core.commits.settle()
        return self._outcome(call, form, outcome)

    def _written(self, call: Call) -> Outcome:
        if call.sub and call.verb == "create":
            raise status_errors.method_not_allowed()
        if call.verb == "patch":
            return self._patcher.patch(call)
        obj = self._writer.understood(call, *self.body(call))
        return (
            self._writer.create(call, obj)
            if call.verb == "create"
            else self._writer.update(call, obj)
        )

    def body(self, call: Call) -> tuple[Object, list[str]]:
        """The object in the body, and the keys that came twice."""
        twice: list[str] = []
        wanted = twice if call.validation != "Ignore" and b'"' in call.request.body else None
        kind = call.request.headers.get("content-type", "")
        try:
            return request_body.read(call.request.body, kind, self._protobuf.decode, wanted), twice
        except request_body.Unrecognized as problem:
            raise problem.named(call.face.kind) from None

    def _outcome(self, call: Call, form: AnyForm, outcome: Outcome) -> requests.Response:
        if outcome.record is not None:
            body = form.body(outcome.record) + b"\n"
        else:
            body = form.object(outcome.object)
        return self._whole(call, outcome.code, body)

    async def _delete(self, call: Call, form: AnyForm) -> requests.Response:
        options = deleter.options_of(call, self._protobuf.decode)
        if call.verb == "deletecollection":
            gone = self._remover.delete_collection(call, options)
            await self.core.commits.settle()
            meta = {"resourceVersion": str(self.core.state.revision)}
            return self._whole(call, 200, form.list([form.item(r) for r in gone], meta))
        code, obj = self._remover.delete(call, options)
        await self.core.commits.settle()
        if obj.get("kind") == "Status" and obj.get("apiVersion") == "v1":
            return self._whole(call, code, encode(obj) + b"\n")
        return self._whole(call, code, form.object(obj))

    async def _serve_sub(self, call: Call) -> requests.Response:
        code, obj = self._subresources.serve(call, self.body)
        await self.core.commits.settle()
        return self._whole(call, code, encode(obj) + b"\n")

    def _whole(self, call: Call, status: int, body: bytes) -> requests.Response:
        return requests.Response(status=status, headers=self._headers(call), body=body)

    def _headers(self, call: Call) -> Mapping[str, str]:
        return {**JSON_HEADERS, **_warned(call.warnings)} if call.warnings else JSON_HEADERS


def version_info(version: str) -> Object:
    """What ``/version`` says."""
    major, minor, _ = version.removeprefix("v").split(".", 2)
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"{version}+moxwell",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "gc",
        "platform": "",
    }


def _warned(warnings: Sequence[str]) -> dict[str, str]:
    """Warnings as one header; several are joined by commas."""
    texts = (text.replace("\\", "\\\\").replace('"', '\\"') for text in warnings)
    joined = ", ".join(f'299 - "{text}"' for text in texts)
    return {"warning": joined} if joined else {}


def json_response(status: int, value: object) -> requests.Response:
    return requests.Response(status=status, headers=JSON_HEADERS, body=encode(value) + b"\n")


def status_response(refused: status_errors.Refused) -> requests.Response:
    if refused.plain:
        headers = {"content-type": "text/plain; charset=utf-8"}
        return requests.Response(
            status=refused.code, headers=headers, body=refused.message.encode()
        )
    headers = {**JSON_HEADERS, **_warned(refused.warnings)}
    after = (refused.details or {}).get("retryAfterSeconds")
    if after:
        headers["retry-after"] = str(after)
    return requests.Response(
        status=refused.code, headers=headers, body=encode(refused.status()) + b"\n"
    )
