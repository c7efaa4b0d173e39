"""All cases of the suite; names are unique."""

from importlib import import_module

from apisuite.case import Case

HTTP = (
    "objects",
    "lists",
    "watches",
    "patches",
    "strategic",
    "applies",
    "checks",
    "deletes",
    "namespaces",
    "crds",
    "crd_schemas",
    "crd_rules",
    "subresources",
    "builtins",
    "quota",
    "discovery",
    "access",
    "escalation",
    "kubelets",
    "limits",
    "randomized",
    "unsupported",
)
KUBECTL = ("kubectl_objects", "kubectl_apply", "kubectl_crds", "kubectl_cluster")


def load(areas: tuple[str, ...]) -> tuple[tuple[str, Case], ...]:
    """Return ``(area, case)`` for each case of the areas."""
    found: list[tuple[str, Case]] = []
    for area in areas:
        cases: tuple[Case, ...] = import_module(f"apisuite.cases.{area}").CASES
        found.extend((area, case) for case in cases)
    return tuple(found)
