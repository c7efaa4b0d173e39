"""
The embedded Kubernetes API server: handles requests without HTTP; ``http.py`` serves it over HTTPS.

``handle`` resolves the resource, authorizes, stages the write, waits for the commit and renders the
response. A request without a user comes from this process and is allowed everything; a network
server must authenticate first.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from moxwell.api import requests
from moxwell.clock import Clock, SystemClock
from moxwell.embedded.apiserver import (
    deleter,
    limits,
    request_body,
    request_info,
    status_errors,
    typed_bodies,
)
from moxwell.embedded.apiserver.admission_defaults import AdmissionDefaults
from moxwell.embedded.apiserver.audit.audit_log import AuditLog
from moxwell.embedded.apiserver.auth.escalation import EscalationCheck
from moxwell.embedded.apiserver.auth.impersonation import impersonate
from moxwell.embedded.apiserver.auth.rbac import Authorizer
from moxwell.embedded.apiserver.auth.restrictions import restrictions
from moxwell.embedded.apiserver.auth.reviews import AccessReviews
from moxwell.embedded.apiserver.auth.tokens import ServiceAccountTokens
from moxwell.embedded.apiserver.background import BackgroundController
from moxwell.embedded.apiserver.builtin import model
from moxwell.embedded.apiserver.commits import Committer
from moxwell.embedded.apiserver.core import ServerContext
from moxwell.embedded.apiserver.crd.definitions import CrdRegistrar
from moxwell.embedded.apiserver.deleter import Deleter
from moxwell.embedded.apiserver.discovery import DiscoveryHandler
from moxwell.embedded.apiserver.encryption import encrypted_log
from moxwell.embedded.apiserver.encryption.encrypted_log import open_log
from moxwell.embedded.apiserver.encryption.envelope import RowEncryption
from moxwell.embedded.apiserver.hooks import Hooks
from moxwell.embedded.apiserver.kubelet.kubelet_requests import KubeletRequests
from moxwell.embedded.apiserver.kubelet.kubelets import OpenKubelets
from moxwell.embedded.apiserver.object_cache import ObjectCache, StoredChange, encode, key_of
from moxwell.embedded.apiserver.openapi import OpenApiHandler
from moxwell.embedded.apiserver.patcher import Patcher
from moxwell.embedded.apiserver.protobuf import ProtobufDecoder
from moxwell.embedded.apiserver.quota.admission import QuotaAdmission
from moxwell.embedded.apiserver.reader import ResourceReader
from moxwell.embedded.apiserver.representations import Representation, negotiate
from moxwell.embedded.apiserver.request_info import ApiCall
from moxwell.embedded.apiserver.resources import ResourceRegistry
from moxwell.embedded.apiserver.storage.service import StorageService
from moxwell.embedded.apiserver.storage.settings import StorageSettings
from moxwell.embedded.apiserver.subresources import SubresourceHandler
from moxwell.embedded.apiserver.version import version_info
from moxwell.embedded.apiserver.warning_headers import warning_header
from moxwell.embedded.apiserver.watches import WatchCaches
from moxwell.embedded.apiserver.writer import STATUS_LIKE, ResourceWriter, WriteResult
from moxwell.pki.certificates import SigningKey, create_key

Object = dict[str, Any]
VERSION = "v1.36.3"
JSON_HEADERS: Mapping[str, str] = {"content-type": "application/json"}

READS = ("get", "list", "watch")


class EmbeddedApiServer:
    """An embedded Kubernetes API server; ``path=None`` keeps all objects in memory."""

    def __init__(
        self,
        *,
        path: Path | None = None,
        clock: Clock | None = None,
        hooks: Hooks | None = None,
        storage: StorageSettings | None = None,
        encryption: RowEncryption | None = None,
        audit: AuditLog | None = None,
        max_pages: int | None = None,
        root_ca: str = "",
        token_key: SigningKey | None = None,
        version: str = VERSION,
        kubelets: OpenKubelets | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._version = version
        self._audit = audit or AuditLog(None, self._clock)
        settings = storage or StorageSettings()
        self._log = open_log(path, settings, encryption, max_pages)
        cache = ObjectCache()
        watch_caches = WatchCaches(self._clock, lambda: cache.revision)
        committer = Committer(cache, self._log, self._on_commit)
        self.core = ServerContext(
            cache,
            committer,
            watch_caches,
            ResourceRegistry(),
            self._clock,
            hooks or Hooks(),
            model.BuiltinTypeData(),
        )
        self.tokens = ServiceAccountTokens(token_key or create_key(), cache, self._clock)
        self.storage = StorageService(self._log, settings, cache, committer, self._clock)
        self._build(root_ca)
        self.kubelets = kubelets(self._nodes) if kubelets else None
        opened = self.kubelets
        made = KubeletRequests(self.core, self.authorizer, opened) if opened else None
        self._kubelet_requests = made

    def _nodes(self, name: str) -> list[Object]:
        """The node of a name, or all."""
        home = self.core.registry.hub("nodes")
        assert home is not None, "it is built in"
        records = self.core.cache.table("nodes").scan(name)
        return [self.core.decode(home, r) for r in records if not name or r.name == name]

    def _build(self, root_ca: str) -> None:
        core = self.core
        core.registry.put(model.builtin_resources(core.tables))
        self._builtin_groups = frozenset(resource.group for resource in core.registry)
        self._reader = ResourceReader(core.cache, core.watch_caches)
        self._writer = ResourceWriter(core)
        self._deleter = Deleter(core, self._writer)
        self._patcher = Patcher(core, self._writer)
        self._protobuf = ProtobufDecoder(core.tables)
        self._definitions = CrdRegistrar(core)
        self._discovery = DiscoveryHandler(core.registry)
        self._openapi = OpenApiHandler(core.registry, core.tables)
        self.authorizer = Authorizer(core.cache)
        self._writer.check_escalation = EscalationCheck(self.authorizer).check
        self._writer.restrict = restrictions(core.cache, self.authorizer)
        self._writer.add_defaults = AdmissionDefaults(core).add_defaults
        quota_admission = QuotaAdmission(core)
        self._writer.apply_limit_ranges, self._writer.check_quota = (
            quota_admission.default,
            quota_admission.check,
        )
        self._subresources = SubresourceHandler(
            core,
            self._writer,
            self._patcher,
            self._deleter,
            AccessReviews(self.authorizer, self.tokens),
            self.tokens,
        )
        self._collector = BackgroundController(core, self._deleter, root_ca)

    # lifecycle

    async def start(self) -> None:
        """Load the log, register the CRDs and create the default objects."""
        self.storage.load(self.core.watch_caches)
        self._definitions.load()
        encrypted_log.rewrite(self.core, self._log)
        await self._collector.start()
        self.storage.start()

    async def stop(self) -> None:
        """End watches, finish commits and close the file."""
        await self.storage.stop()
        await self._collector.stop()
        self.core.watch_caches.end()
        if self.kubelets is not None:
            await self.kubelets.close()
        await self.core.committer.close()
        self._audit.close()

    async def __aenter__(self) -> "EmbeddedApiServer":
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    def _on_commit(self, change: StoredChange) -> None:
        self._definitions.on_change(change)
        self.authorizer.on_change(change)
        self.core.watch_caches.publish(change)
        self._collector.on_change(change)

    # requests

    async def handle(self, request: requests.Request) -> requests.Response:
        """Handle one request; errors of the caller become responses, not exceptions."""
        received = self._audit.received()
        response = await self._handle(request)
        self._audit.record(request, response, received)
        return response

    async def _handle(self, request: requests.Request) -> requests.Response:
        try:
            return await self._respond(request_info.cleaned(request))
        except status_errors.StatusError as error:
            return status_response(error)
        except limits.TooDeep as error:
            return status_response(status_errors.bad_request(str(error)))

    async def _respond(self, request: requests.Request) -> requests.Response:
        request = impersonate(request, self.authorizer)
        target = request_info.parse_path(request.path)
        if target is None:
            self.authorizer.authorize_path(request)
            return await self.storage.handle(request) or self._serve_non_resource(request)
        call = self._resolve(request, target)
        self.authorizer.authorize(call)
        try:
            return await self._serve(call)
        except status_errors.StatusError as error:
            error.warnings = tuple(call.warnings)
            if call.verb not in READS:  # the object that caused the rejection must be readable
                await self.core.committer.wait_durable()
            raise

    def _serve_non_resource(self, request: requests.Request) -> requests.Response:
        """Serve discovery, OpenAPI, health and version."""
        path = request.path.rstrip("/") or "/"
        if request.method not in ("GET", "HEAD"):
            raise status_errors.method_not_allowed()
        if path.split("/")[1] in ("healthz", "livez", "readyz"):
            return requests.Response(status=200, headers={"content-type": "text/plain"}, body=b"ok")
        if path == "/version":
            return json_response(200, version_info(self._version))
        found = self._discovery.handle(request) or self._openapi.handle(request)
        if found is None:
            parts = path.split("/")
            raise self._unknown_path(
                parts[2]
                if parts[1] == "apis" and len(parts) > 3
                else ""
                if parts[1] == "api"
                else "?"
            )
        return found

    def _resolve(self, request: requests.Request, target: request_info.RequestInfo) -> ApiCall:
        resource = self.core.registry.find(target.group, target.version, target.plural)
        if resource is None:
            raise self._unknown_path(target.group)
        query = dict(reversed(request.query))
        watch = request_info.is_true(query.get("watch", "0")) and not target.name
        verb = request_info.request_verb(request, bool(target.name), watch)
        if verb == "create" and target.name and not target.subresource:
            raise status_errors.method_not_allowed()
        if resource.namespaced and not target.namespace and (verb != "list" and verb != "watch"):
            raise (
                status_errors.method_not_allowed()
                if not target.name
                else status_errors.path_not_found()
            )
        if not resource.namespaced and target.namespace and resource.plural != "namespaces":
            raise self._unknown_path(target.group)
        return ApiCall(
            request=request,
            resource=resource,
            verb=verb,
            namespace=target.namespace,
            name=target.name,
            subresource=target.subresource,
            user=request.user or request_info.ADMIN,
            query=query,
        )

    def _unknown_path(self, group: str) -> status_errors.StatusError:
        """Build the 404; groups of custom resources respond in plain text."""
        return (
            status_errors.path_not_found()
            if group in self._builtin_groups
            else status_errors.page_not_found()
        )

    async def _serve(self, call: ApiCall) -> requests.Response:
        if self._kubelet_requests is not None and self._kubelet_requests.serves(call):
            return await self._kubelet_requests.handle(call)
        special = call.subresource or call.resource.verbs == ("create",)
        if special and (call.subresource not in STATUS_LIKE or not call.resource.status):
            return await self._serve_subresource(call)
        if call.verb not in call.resource.verbs:
            raise status_errors.method_not_allowed()
        if call.resource.deprecated:
            call.warnings.append(call.resource.deprecated)
        if call.name or call.verb != "create":  # the name of a new object is in the body
            self._check_readable(call)
        include = call.query.get("includeObject", "")
        accept = call.request.headers.get("accept", "")
        representation = negotiate(accept, call.resource, include, self.core.now)
        match call.verb:
            case "get":
                return self._response(call, 200, self._reader.get(call, representation))
            case "list":
                return self._response(call, 200, self._reader.list(call, representation))
            case "watch":
                chunks = self._reader.watch(call, representation)
                return requests.Response(status=200, headers=self._headers(call), chunks=chunks)
            case "delete" | "deletecollection":
                return await self._delete(call, representation)
        return await self._write(call, representation)

    def _check_readable(self, call: ApiCall) -> None:
        """Refuse requests that a damaged object is part of, as kube-apiserver does."""
        namespace = call.namespace if call.resource.namespaced else ""
        prefix = key_of(namespace, call.name) if call.name or namespace else ""
        damaged = self.core.cache.find_unreadable(call.resource.group_resource, prefix)
        if damaged is not None and (not call.name or damaged.key == prefix):
            raise status_errors.unreadable(damaged)

    async def _write(self, call: ApiCall, representation: Representation) -> requests.Response:
        outcome = self._stage_write(call)
        if outcome.record is not None or not call.dry_run:
            await self.core.committer.wait_durable()
        return self._render_result(call, representation, outcome)

    def _stage_write(self, call: ApiCall) -> WriteResult:
        if call.subresource and call.verb == "create":
            raise status_errors.method_not_allowed()
        if call.verb == "patch":
            return self._patcher.patch(call)
        obj = self._writer.decode(call, *self.decode_request_body(call))
        return (
            self._writer.create(call, obj)
            if call.verb == "create"
            else self._writer.update(call, obj)
        )

    def decode_request_body(self, call: ApiCall) -> tuple[Object, list[str]]:
        """Decode the object of the body; returns it with its duplicate keys."""
        duplicates: list[str] = []
        wanted = duplicates if call.validation != "Ignore" and b'"' in call.request.body else None
        kind = call.request.headers.get("content-type", "")
        try:
            return request_body.decode_body(
                call.request.body, kind, self._protobuf.decode, wanted
            ), duplicates
        except request_body.UnrecognizedBody as problem:
            kind = typed_bodies.expected_kind(call.subresource, call.resource.kind)
            raise problem.named(kind) from None

    def _render_result(
        self, call: ApiCall, representation: Representation, outcome: WriteResult
    ) -> requests.Response:
        if outcome.record is not None:
            body = representation.body(outcome.record) + b"\n"
        else:
            body = representation.object(outcome.object)
        return self._response(call, outcome.code, body)

    async def _delete(self, call: ApiCall, representation: Representation) -> requests.Response:
        options = deleter.decode_delete_options(call, self._protobuf.decode, self.core.tables.types)
        if call.verb == "deletecollection":
            gone = self._deleter.delete_collection(call, options)
            await self.core.committer.wait_durable()
            meta = {"resourceVersion": str(self.core.cache.revision)}
            return self._response(
                call, 200, representation.list([representation.item(r) for r in gone], meta)
            )
        code, obj = self._deleter.delete(call, options)
        await self.core.committer.wait_durable()
        if obj.get("kind") == "Status" and obj.get("apiVersion") == "v1":
            return self._response(call, code, encode(obj) + b"\n")
        return self._response(call, code, representation.object(obj))

    async def _serve_subresource(self, call: ApiCall) -> requests.Response:
        code, obj = self._subresources.handle(call, self.decode_request_body)
        await self.core.committer.wait_durable()
        return self._response(call, code, encode(obj) + b"\n")

    def _response(self, call: ApiCall, status: int, body: bytes) -> requests.Response:
        return requests.Response(status=status, headers=self._headers(call), body=body)

    def _headers(self, call: ApiCall) -> Mapping[str, str]:
        return {**JSON_HEADERS, **warning_header(call.warnings)} if call.warnings else JSON_HEADERS


def json_response(status: int, value: object) -> requests.Response:
    return requests.Response(status=status, headers=JSON_HEADERS, body=encode(value) + b"\n")


def status_response(error: status_errors.StatusError) -> requests.Response:
    if error.plain:
        headers = {"content-type": "text/plain; charset=utf-8"}
        return requests.Response(status=error.code, headers=headers, body=error.message.encode())
    headers = {**JSON_HEADERS, **warning_header(error.warnings)}
    after = (error.details or {}).get("retryAfterSeconds")
    if after:
        headers["retry-after"] = str(after)
    return requests.Response(
        status=error.code, headers=headers, body=encode(error.status()) + b"\n"
    )
