"""Watches: events, their order, resumption."""

from apisuite.case import (
    MERGE,
    METADATA,
    TABLE,
    Watch,
    case,
    delete,
    get,
    patch,
    post,
    put,
    status_only,
)
from apisuite.cases.bodies import CM, cm

START = get(f"{CM}?labelSelector=w", save={"rv": "metadata.resourceVersion"}, show="nothing")
LABEL = {"w": "1"}
W = f"{CM}?watch=true&labelSelector=w"

CASES = (
    case(
        "added, modified and deleted in order",
        START,
        Watch(
            path=f"{W}&resourceVersion=$rv",
            during=(
                post(CM, cm("a", {"k": "1"}, labels=LABEL)),
                put(f"{CM}/a", cm("a", {"k": "2"}, labels=LABEL)),
                delete(f"{CM}/a"),
            ),
            events=3,
        ),
    ),
    case(
        "without a revision what exists is added first",
        status_only(post(CM, cm("a", labels=LABEL))),
        status_only(post(CM, cm("b", labels=LABEL))),
        Watch(path=W, events=2),
    ),
    case(
        "from revision 0 what exists is added first",
        status_only(post(CM, cm("a", labels=LABEL))),
        Watch(path=f"{W}&resourceVersion=0", events=1),
    ),
    case(
        "a change that leaves the selector is a deletion",
        status_only(post(CM, cm("a", labels=LABEL))),
        START,
        Watch(
            path=f"{W}&resourceVersion=$rv",
            during=(patch(MERGE, f"{CM}/a", {"metadata": {"labels": {"w": None, "x": "1"}}}),),
        ),
    ),
    case(
        "a change that enters the selector is an addition",
        status_only(post(CM, cm("a", labels={"x": "1"}))),
        START,
        Watch(
            path=f"{W}&resourceVersion=$rv",
            during=(patch(MERGE, f"{CM}/a", {"metadata": {"labels": LABEL}}),),
        ),
    ),
    case(
        "a write that changes nothing sends no event",
        status_only(post(CM, cm("a", {"k": "1"}, labels=LABEL))),
        START,
        Watch(
            path=f"{W}&resourceVersion=$rv",
            during=(
                put(f"{CM}/a", cm("a", {"k": "1"}, labels=LABEL)),
                put(f"{CM}/a", cm("a", {"k": "2"}, labels=LABEL)),
            ),
        ),
    ),
    case(
        "one object by field selector",
        status_only(post(CM, cm("a", labels=LABEL))),
        status_only(post(CM, cm("b", labels=LABEL))),
        Watch(path=f"{CM}?watch=1&fieldSelector=metadata.name%3Db&resourceVersion=0", events=1),
    ),
    case(
        "a watch of one name",
        status_only(post(CM, cm("b", labels=LABEL))),
        Watch(path=f"{CM}/b?watch=true&resourceVersion=0", events=1),
    ),
    case(
        "initial events end with a bookmark",
        status_only(post(CM, cm("a", labels=LABEL))),
        Watch(
            path=f"{W}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
            "&allowWatchBookmarks=true",
            events=2,
        ),
    ),
    case("initial events need bookmarks", get(f"{W}&sendInitialEvents=true")),
    case(
        "initial events need a match",
        get(f"{W}&sendInitialEvents=true&allowWatchBookmarks=true"),
    ),
    case("a watch of a bad revision", get(f"{W}&resourceVersion=x")),
    case("a watch ends at its time", get(f"{W}&resourceVersion=0&timeoutSeconds=1")),
    case(
        "watch=True as Python writes it",
        Watch(path=f"{CM}?watch=True&labelSelector=w", during=(post(CM, cm("a", labels=LABEL)),)),
    ),
    case(
        "a watch of tables",
        START,
        Watch(
            path=f"{W}&resourceVersion=$rv",
            headers={"Accept": TABLE},
            during=(post(CM, cm("a", {"k": "1"}, labels=LABEL)),),
            drop=("object.columnDefinitions.*.description", "object.rows.*.cells"),
        ),
    ),
    case(
        "a watch of metadata",
        START,
        Watch(
            path=f"{W}&resourceVersion=$rv",
            headers={"Accept": METADATA},
            during=(post(CM, cm("a", {"k": "1"}, labels=LABEL)),),
        ),
    ),
    case(
        "a watch across namespaces",
        START,
        Watch(
            path="/api/v1/configmaps?watch=true&labelSelector=w%3D$u&resourceVersion=$rv",
            during=(post(CM, cm("a", labels={"w": "$u"})),),
        ),
    ),
)
