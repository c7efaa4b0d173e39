"""Custom resources: CRDs, discovery, versions, columns, subresources, deletion."""

from apisuite.case import (
    APPLY,
    MERGE,
    STRATEGIC,
    TABLE,
    ApiRequest,
    Define,
    Watch,
    case,
    delete,
    get,
    patch,
    post,
    put,
    server_side_apply,
    status_only,
)
from apisuite.cases.bodies import CRD, CRDS, WIDGET_SCHEMA, WIDGETS, Body, crd, crd_of, widget


def made(body: Body | None = None, version: str = "v1") -> tuple[Define, ...]:
    """A CRD shared by all cases with the same definition."""
    serves = f"/apis/$u.example.com/{version}/namespaces/$ns/widgets"
    return (Define(body=body if body is not None else crd(), serves=serves),)


def own(body: Body | None = None) -> tuple[ApiRequest, ...]:
    """A CRD of the case's own, which it may change."""
    return (
        post(CRDS, body if body is not None else crd(), show="status"),
        get(CRD, until=("status.conditions[type=Established].status", "True"), show="status"),
        get(WIDGETS, until=("status", 200), show="status"),
    )


def version(name: str, **more: object) -> Body:
    return {
        "name": name,
        "served": True,
        "storage": False,
        "schema": {"openAPIV3Schema": WIDGET_SCHEMA},
        **more,
    }


COLUMNS = [
    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
    {
        "name": "Phase",
        "type": "string",
        "jsonPath": ".status.phase",
        "priority": 1,
        "description": "where it is",
    },
    {"name": "Tag", "type": "string", "jsonPath": ".spec.tags[0]"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]
TWO = crd_of("widgets", "Widget", [version("v1", storage=True), version("v2")])
P = f"{WIDGETS}/w"

CASES = (
    case(
        "a definition as created",
        post(
            CRDS,
            crd(),
            drop=("metadata.managedFields", "spec.versions.*.schema", "status.conditions"),
        ),
    ),
    case(
        "a definition as established",
        *own(),
        get(
            CRD,
            drop=("metadata.managedFields", "metadata.resourceVersion", "spec.versions.*.schema"),
        ),
    ),
    case(
        "a definition under the wrong name",
        post(CRDS, {**crd(), "metadata": {"name": "other.$u.example.com"}}),
    ),
    case("a definition without a schema", post(CRDS, crd(schema=None))),
    case("a definition with no stored version", post(CRDS, crd(storage=False))),
    case(
        "a definition with two stored versions",
        post(
            CRDS,
            crd_of("widgets", "Widget", [version("v1", storage=True), version("v2", storage=True)]),
        ),
    ),
    case(
        "a definition whose schema is not structural",
        post(
            CRDS,
            crd(
                schema={
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": {"properties": {"a": {"type": "string"}}}},
                    }
                }
            ),
        ),
    ),
    case(
        "a definition with a bad default",
        post(
            CRDS,
            crd(
                schema={
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {"a": {"type": "integer", "default": "x"}},
                            }
                        },
                    }
                }
            ),
        ),
    ),
    case(
        "a definition with a bad scope",
        post(CRDS, crd_of("widgets", "Widget", [version("v1", storage=True)], scope="Odd")),
    ),
    case(
        "a definition with a bad version name",
        post(CRDS, crd_of("widgets", "Widget", [version("V_1", storage=True)])),
    ),
    case(
        "a definition's scope is fixed",
        *made(),
        patch(MERGE, CRD, {"spec": {"scope": "Cluster"}}, drop=("message",)),
    ),
    case("create", *made(), post(WIDGETS, widget("w", {"size": 2}))),
    case(
        "create with another version in the body", *made(), post(WIDGETS, widget("w", version="v9"))
    ),
    case(
        "replace needs a resource version",
        *made(),
        status_only(post(WIDGETS, widget("w"))),
        put(P, widget("w", {"size": 4})),
    ),
    case(
        "replace with one",
        *made(),
        post(WIDGETS, widget("w"), save={"rv": "metadata.resourceVersion"}),
        put(P, {**widget("w", {"size": 4}), "metadata": {"name": "w", "resourceVersion": "$rv"}}),
    ),
    case(
        "generation follows the spec",
        *made(),
        post(WIDGETS, widget("w"), only=("metadata.generation",)),
        patch(MERGE, P, {"metadata": {"labels": {"a": "b"}}}, only=("metadata.generation",)),
        patch(MERGE, P, {"spec": {"size": 5}}, only=("metadata.generation",)),
        patch(
            MERGE, f"{P}/status", {"status": {"phase": "x"}}, only=("metadata.generation", "status")
        ),
    ),
    case("status is dropped on create", *made(), post(WIDGETS, widget("w", status={"phase": "x"}))),
    case(
        "status is left alone by a write of the whole",
        *made(),
        status_only(post(WIDGETS, widget("w"))),
        status_only(patch(MERGE, f"{P}/status", {"status": {"phase": "x"}})),
        patch(MERGE, P, {"spec": {"size": 6}, "status": {"phase": "y"}}, only=("spec", "status")),
    ),
    case(
        "the whole is left alone by a write of status",
        *made(),
        status_only(post(WIDGETS, widget("w"))),
        patch(
            MERGE,
            f"{P}/status",
            {"spec": {"size": 6}, "metadata": {"labels": {"a": "b"}}, "status": {"phase": "y"}},
        ),
    ),
    case(
        "status read and replaced",
        *made(),
        post(WIDGETS, widget("w"), save={"rv": "metadata.resourceVersion"}),
        put(
            f"{P}/status",
            {
                **widget("w", status={"phase": "z"}),
                "metadata": {"name": "w", "resourceVersion": "$rv"},
            },
        ),
        get(f"{P}/status"),
    ),
    case(
        "status applied",
        *made(),
        status_only(server_side_apply(P, "one", widget("w", {"size": 2}))),
        server_side_apply(
            f"{P}/status",
            "two",
            {
                "apiVersion": "$u.example.com/v1",
                "kind": "Widget",
                "metadata": {"name": "w"},
                "status": {"phase": "ok"},
            },
        ),
    ),
    case(
        "without a status subresource it is part of the whole",
        *made(crd(subresources=None)),
        post(WIDGETS, widget("w", status={"phase": "x"}), only=("status",)),
        patch(MERGE, P, {"status": {"phase": "y"}}, only=("metadata.generation", "status")),
        get(f"{P}/status"),
    ),
    case(
        "strategic patches are refused",
        *made(),
        status_only(post(WIDGETS, widget("w"))),
        patch(STRATEGIC, P, {"spec": {"size": 5}}),
    ),
    case(
        "apply",
        *made(),
        server_side_apply(P, "one", widget("w", {"size": 2})),
        server_side_apply(P, "two", widget("w", {"colour": "red"})),
        server_side_apply(P, "two", widget("w", {"size": 9})),
    ),
    case(
        "apply: list by key",
        *made(),
        server_side_apply(P, "one", widget("w", {"parts": [{"id": "a", "weight": 1}]})),
        server_side_apply(P, "two", widget("w", {"parts": [{"id": "b"}]})),
        server_side_apply(P, "one", widget("w", {"parts": []})),
    ),
    case(
        "apply: list is atomic by default",
        *made(),
        server_side_apply(P, "one", widget("w", {"tags": ["a"]})),
        server_side_apply(P, "two", widget("w", {"tags": ["a", "b"]})),
    ),
    case(
        "apply: unknown fields are pruned",
        *made(),
        server_side_apply(P, "one", widget("w", {"size": 2, "odd": 1})),
    ),
    case(
        "scale: read",
        *made(),
        status_only(post(WIDGETS, widget("w", {"replicas": 3}))),
        status_only(patch(MERGE, f"{P}/status", {"status": {"replicas": 2, "selector": "a=b"}})),
        get(f"{P}/scale"),
    ),
    case(
        "scale: patch",
        *made(),
        status_only(post(WIDGETS, widget("w", {"replicas": 3}))),
        patch(MERGE, f"{P}/scale", {"spec": {"replicas": 5}}),
        get(P, only=("spec.replicas", "metadata.generation")),
    ),
    case(
        "scale: replace",
        *made(),
        status_only(post(WIDGETS, widget("w", {"replicas": 3}))),
        put(
            f"{P}/scale",
            {
                "apiVersion": "autoscaling/v1",
                "kind": "Scale",
                "metadata": {"name": "w", "namespace": "$ns"},
                "spec": {"replicas": 7},
            },
        ),
    ),
    case(
        "scale: a negative number",
        *made(),
        status_only(post(WIDGETS, widget("w", {"replicas": 3}))),
        patch(MERGE, f"{P}/scale", {"spec": {"replicas": -1}}),
    ),
    case(
        "scale: not defined",
        *made(crd(subresources={"status": {}})),
        status_only(post(WIDGETS, widget("w"))),
        get(f"{P}/scale"),
    ),
    case(
        "columns in a table",
        *made(crd(additionalPrinterColumns=COLUMNS)),
        status_only(post(WIDGETS, widget("w", {"size": 4, "tags": ["x", "y"]}))),
        get(
            WIDGETS,
            headers={"Accept": TABLE},
            drop=("rows.*.cells", "rows.*.object", "columnDefinitions.*.description"),
        ),
        get(
            WIDGETS,
            headers={"Accept": TABLE},
            only=("rows[0].cells[0]", "rows[0].cells[1]", "rows[0].cells[2]", "rows[0].cells[3]"),
        ),
    ),
    case(
        "columns by default",
        *made(),
        status_only(post(WIDGETS, widget("w"))),
        get(
            WIDGETS,
            headers={"Accept": TABLE},
            drop=("rows.*.cells", "columnDefinitions.*.description"),
        ),
    ),
    case(
        "discovery of the group",
        *made(
            crd_of(
                "widgets",
                "Widget",
                [version("v1", storage=True), version("v2")],
                names={
                    "plural": "widgets",
                    "singular": "widget",
                    "kind": "Widget",
                    "listKind": "WidgetList",
                    "shortNames": ["wd"],
                    "categories": ["all", "toys"],
                },
            )
        ),
        get("/apis/$u.example.com", until=("versions[1].version", "v1")),
        get("/apis/$u.example.com/v1", until=("status", 200)),
    ),
    case(
        "discovery of subresources", *made(), get("/apis/$u.example.com/v1", until=("status", 200))
    ),
    case(
        "two versions of one object",
        *made(TWO, version="v2"),
        post(WIDGETS, widget("w", {"size": 2})),
        get(P.replace("/v1/", "/v2/")),
        patch(MERGE, P.replace("/v1/", "/v2/"), {"spec": {"size": 3}}),
    ),
    case(
        "a list in the other version",
        *made(TWO, version="v2"),
        status_only(post(WIDGETS, widget("w", {"size": 2}))),
        get(WIDGETS.replace("/v1/", "/v2/")),
    ),
    case(
        "a watch in the other version",
        *made(TWO, version="v2"),
        status_only(post(WIDGETS, widget("w", {"size": 2}))),
        Watch(path=WIDGETS.replace("/v1/", "/v2/") + "?watch=true&resourceVersion=0", events=1),
    ),
    case(
        "a version that is not served",
        *made(
            crd_of("widgets", "Widget", [version("v1", storage=True), version("v2", served=False)])
        ),
        get(WIDGETS.replace("/v1/", "/v2/")),
    ),
    case(
        "a deprecated version warns",
        *made(crd_of("widgets", "Widget", [version("v1", storage=True, deprecated=True)])),
        get(WIDGETS),
    ),
    case(
        "a deprecated version warns in its own words",
        *made(
            crd_of(
                "widgets",
                "Widget",
                [
                    version(
                        "v1", storage=True, deprecated=True, deprecationWarning="use something else"
                    )
                ],
            )
        ),
        get(WIDGETS),
    ),
    case(
        "a cluster-scoped kind",
        *(
            post(
                CRDS,
                crd_of("gadgets", "Gadget", [version("v1", storage=True)], scope="Cluster"),
                show="status",
            ),
            get("/apis/$u.example.com/v1/gadgets", until=("status", 200)),
        ),
        post(
            "/apis/$u.example.com/v1/gadgets",
            {"apiVersion": "$u.example.com/v1", "kind": "Gadget", "metadata": {"name": "g"}},
        ),
        get("/apis/$u.example.com/v1/namespaces/$ns/gadgets"),
        delete("/apis/$u.example.com/v1/gadgets/g"),
    ),
    case(
        "selectable fields",
        *made(crd(selectableFields=[{"jsonPath": ".spec.colour"}])),
        status_only(post(WIDGETS, widget("a", {"colour": "red"}))),
        status_only(post(WIDGETS, widget("b", {"colour": "green"}))),
        get(
            f"{WIDGETS}?fieldSelector=spec.colour%3Dred",
            only=("items[0].metadata.name", "items[1]"),
        ),
        get(f"{WIDGETS}?fieldSelector=spec.size%3D3"),
    ),
    case(
        "names that are taken are not accepted",
        *own(),
        post(CRDS, crd_of("others", "Widget", [version("v1", storage=True)]), show="status"),
        get(
            f"{CRDS}/others.$u.example.com",
            until=("status.conditions[type=NamesAccepted].status", "False"),
            only=(
                "status.conditions[type=NamesAccepted].reason",
                "status.conditions[type=NamesAccepted].message",
                "status.conditions[type=Established].status",
            ),
        ),
    ),
    case(
        "a definition goes with its objects",
        *own(),
        status_only(post(WIDGETS, widget("w"))),
        delete(CRD, only=("kind", "status.phase", "metadata.finalizers", "reason")),
        get(CRD, until=("status", 404)),
        get(WIDGETS, until=("status", 404)),
    ),
    case(
        "a definition waits for held objects",
        *own(),
        status_only(
            post(
                WIDGETS,
                {**widget("w"), "metadata": {"name": "w", "finalizers": ["example.com/hold"]}},
            )
        ),
        status_only(delete(CRD)),
        get(
            CRD,
            until=("status.conditions[type=Terminating].status", "True"),
            only=("metadata.finalizers", "status.conditions[type=Terminating].status"),
        ),
        patch(MERGE, P, {"metadata": {"finalizers": None}}, show="status"),
        get(CRD, until=("status", 404)),
    ),
    case(
        "nothing is made while a definition is going",
        *own(),
        status_only(
            post(
                WIDGETS,
                {**widget("w"), "metadata": {"name": "w", "finalizers": ["example.com/hold"]}},
            )
        ),
        status_only(delete(CRD)),
        get(CRD, until=("status.conditions[type=Terminating].status", "True"), show="status"),
        post(WIDGETS, widget("x")),
        patch(MERGE, P, {"metadata": {"finalizers": None}}, show="status"),
        get(CRD, until=("status", 404)),
    ),
    case("a group nobody defined", get("/apis/no-$u.example.com/v1/namespaces/$ns/widgets")),
    case(
        "apply of a definition",
        patch(
            APPLY,
            f"{CRD}?fieldManager=one",
            crd(),
            only=("metadata.name", "spec.names", "spec.scope"),
        ),
        get(
            CRD,
            until=("status.conditions[type=Established].status", "True"),
            only=("status.acceptedNames", "status.storedVersions"),
        ),
        delete(CRD, show="status"),
    ),
    case(
        "a schema that changes is taken at once",
        *own(),
        status_only(post(WIDGETS, widget("w", {"odd": "1"}))),
        patch(
            MERGE,
            CRD,
            {
                "spec": {
                    "versions": [
                        {
                            **version("v1", storage=True),
                            "schema": {
                                "openAPIV3Schema": {
                                    "type": "object",
                                    "properties": {
                                        "spec": {
                                            "type": "object",
                                            "properties": {
                                                "odd": {"type": "string", "default": "new"}
                                            },
                                        }
                                    },
                                }
                            },
                        }
                    ]
                }
            },
            show="status",
        ),
        get(P, until=("spec.odd", "new"), only=("spec",)),
        patch(MERGE, P, {"spec": {"odd": "2"}}, only=("spec",)),
    ),
)
