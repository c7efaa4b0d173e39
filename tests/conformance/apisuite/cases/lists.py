"""Lists: pages, selectors, revisions, tables, metadata only."""

from apisuite.case import METADATA, METADATA_LIST, TABLE, case, get, post, put, settle, status_only
from apisuite.cases.bodies import CM, PODS, SECRETS, cm, pod, secret

THREE = tuple(
    status_only(post(CM, cm(n, {"k": n}, labels={"n": n, "all": "yes"}))) for n in ("a", "b", "c")
)
MINE = "labelSelector=all%3Dyes"


def selected(selector: str) -> str:
    return f"{CM}?labelSelector={selector}"


CASES = (
    case("list a namespace with nothing of the kind", get(SECRETS)),
    case("list in order of names", *THREE, get(selected("all%3Dyes"))),
    case("list in a namespace that is not there", get(CM.replace("$ns", "no-$u"))),
    case(
        "list across namespaces",
        status_only(post(CM, cm("a", {"k": "v"}, labels={"n": "$u"}))),
        get("/api/v1/configmaps?labelSelector=n%3D$u"),
    ),
    case(
        "pages by limit and continue",
        *THREE,
        get(f"{CM}?limit=2&{MINE}", save={"next": "metadata.continue"}),
        get(f"{CM}?limit=2&{MINE}&continue=$next"),
    ),
    case(
        "remaining items are counted without a selector",
        *(status_only(post(SECRETS, secret(n))) for n in ("a", "b", "c")),
        get(f"{SECRETS}?limit=1", save={"next": "metadata.continue"}),
        get(f"{SECRETS}?limit=5&continue=$next"),
    ),
    case("a continue token nobody gave", get(f"{CM}?limit=1&continue=nonsense")),
    case("a limit that is no number", get(f"{CM}?limit=x")),
    case(
        "continue and a resource version do not go together",
        *THREE,
        get(f"{CM}?limit=1&{MINE}", save={"next": "metadata.continue"}),
        get(f"{CM}?limit=1&{MINE}&continue=$next&resourceVersion=1"),
    ),
    case("selector: equality", *THREE, get(selected("n%3Da"), only=("items[0].metadata.name",))),
    case("selector: double equality", *THREE, get(selected("n%3D%3Db"))),
    case("selector: inequality", *THREE, get(selected("all,n!%3Da"))),
    case("selector: in a set", *THREE, get(selected("n+in+(a,c)"))),
    case("selector: not in a set", *THREE, get(selected("all,n+notin+(a,c)"))),
    case("selector: has the key", *THREE, get(selected("n"))),
    case(
        "selector: has not the key",
        *THREE,
        status_only(post(CM, cm("d", labels={"z": "1"}))),
        get(selected("!n,z")),
    ),
    case("selector: several", *THREE, get(selected("all%3Dyes,n+in+(a,b),n!%3Da"))),
    case(
        "selector: greater than",
        status_only(post(CM, cm("g", labels={"v": "5"}))),
        get(selected("v+%3E+4")),
    ),
    case("selector: that cannot be read", get(selected("a+b+c"))),
    case("selector: with a bad value", get(selected("a%3D%40%40"))),
    case("field selector: by name", *THREE, get(f"{CM}?fieldSelector=metadata.name%3Db")),
    case(
        "field selector: not a name", *THREE, get(f"{CM}?{MINE}&fieldSelector=metadata.name!%3Db")
    ),
    case(
        "field selector: by namespace",
        *THREE,
        get(f"/api/v1/configmaps?{MINE}&fieldSelector=metadata.namespace%3D$ns"),
    ),
    case("field selector: unknown field", get(f"{CM}?fieldSelector=data.k%3Dv")),
    case("field selector: that cannot be read", get(f"{CM}?fieldSelector=abc")),
    case(
        "field selector: secrets by type",
        status_only(post(SECRETS, secret("a", type="x/y"))),
        status_only(post(SECRETS, secret("b"))),
        get(f"{SECRETS}?fieldSelector=type%3Dx/y"),
    ),
    case(
        "field selector: pods by node and phase",
        status_only(post(PODS, pod("p", nodeName="n-$u"))),
        get(
            f"{PODS}?fieldSelector=spec.nodeName%3Dn-$u",
            only=("items[0].metadata.name", "items[1]"),
        ),
        get(f"{PODS}?fieldSelector=status.phase%3DPending", only=("items[0].metadata.name",)),
        get(f"{PODS}?fieldSelector=status.phase%3DRunning", only=("items",)),
    ),
    case(
        "a list of the revision 0 is served from what is there",
        *THREE,
        settle(get(f"{CM}?{MINE}&resourceVersion=0"), "items[2].metadata.name", "c"),
        get(f"{CM}?{MINE}&resourceVersion=0"),
    ),
    case("a revision in the future is too large", get(f"{CM}?resourceVersion=99999999999")),
    case("a revision that is no number", get(f"{CM}?resourceVersion=x")),
    case(
        "an exact revision shows the past",
        status_only(post(CM, cm("a", {"k": "1"}, labels={"all": "yes"}))),
        get(f"{CM}?{MINE}", save={"rv": "metadata.resourceVersion"}, show="nothing"),
        status_only(put(f"{CM}/a", cm("a", {"k": "2"}, labels={"all": "yes"}))),
        get(f"{CM}?{MINE}&resourceVersion=$rv&resourceVersionMatch=Exact"),
    ),
    case("resourceVersionMatch needs a revision", get(f"{CM}?resourceVersionMatch=Exact")),
    case("a match nobody knows", get(f"{CM}?resourceVersion=1&resourceVersionMatch=Odd")),
    case(
        "table of one object",
        *THREE,
        get(
            f"{CM}/a",
            headers={"Accept": TABLE},
            drop=("columnDefinitions.*.description", "rows.*.cells"),
        ),
    ),
    case(
        "table of a list",
        *THREE,
        get(
            f"{CM}?{MINE}",
            headers={"Accept": TABLE},
            drop=("columnDefinitions.*.description", "rows.*.cells"),
        ),
    ),
    case(
        "table cells of secrets",
        status_only(post(SECRETS, secret("s", data={"a": "Yg==", "b": "Yg=="}))),
        get(
            SECRETS,
            headers={"Accept": TABLE},
            only=("rows[0].cells[0]", "rows[0].cells[1]", "rows[0].cells[2]"),
        ),
    ),
    case(
        "table without objects",
        *THREE,
        get(
            f"{CM}?{MINE}&includeObject=None",
            headers={"Accept": TABLE},
            drop=("columnDefinitions.*.description", "rows.*.cells"),
        ),
    ),
    case(
        "table with whole objects",
        *THREE,
        get(
            f"{CM}?{MINE}&includeObject=Object",
            headers={"Accept": TABLE},
            drop=("columnDefinitions.*.description", "rows.*.cells"),
        ),
    ),
    case(
        "table of an odd includeObject", get(f"{CM}?includeObject=Odd", headers={"Accept": TABLE})
    ),
    case(
        "table of pods names their columns",
        get(PODS, headers={"Accept": TABLE}, drop=("columnDefinitions.*.description",)),
    ),
    case(
        "table cells of a pod",
        status_only(post(PODS, pod("p"))),
        get(
            PODS,
            headers={"Accept": TABLE},
            only=("rows[0].cells[0]", "rows[0].cells[1]", "rows[0].cells[2]", "rows[0].cells[3]"),
        ),
    ),
    case("metadata alone of one object", *THREE, get(f"{CM}/a", headers={"Accept": METADATA})),
    case(
        "metadata alone of a list", *THREE, get(f"{CM}?{MINE}", headers={"Accept": METADATA_LIST})
    ),
    case(
        "protobuf preferred, JSON taken",
        *THREE,
        get(f"{CM}/a", headers={"Accept": "application/vnd.kubernetes.nothing, application/json"}),
    ),
    case("anything goes", *THREE, get(f"{CM}/a", headers={"Accept": "*/*"})),
)
