"""
The recorded format of Karpenter's decisions: what a case must have, and fields that are not known.

Only the form is checked here; the parts that are Kubernetes objects are read by their own parsers.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from moxwell.errors import Invalid

Json = Mapping[str, Any]


class InvalidCase(Invalid):
    """A file or a case does not have the recorded format."""

    reason = "InvalidCase"


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of a case; unknown fields are listed, not refused."""


class OptionsForm(_Part, frozen=True, kw_only=True, rename="camel"):
    min_values_policy: Literal["", "Strict", "BestEffort"] = ""
    preference_policy: Literal["", "Respect", "Ignore"] = ""
    spot_to_spot_consolidation: bool = False
    reserved_capacity: bool | None = None


class PoolForm(_Part, frozen=True, kw_only=True, rename="camel"):
    name: str
    spec: Json
    catalogue: str = ""


class NodeForm(_Part, frozen=True, kw_only=True, rename="camel"):
    name: str
    state: Literal["initialized", "registered", "launched", "unmanaged"]
    labels: dict[str, str] | None = None
    capacity: dict[str, str | int | float] | None = None
    allocatable: dict[str, str | int | float] | None = None
    annotations: dict[str, str] | None = None
    taints: list[Json] | None = None
    startup_taints: list[Json] | None = None
    deleting: bool = False
    not_ready: bool = False
    age: int = 0
    last_pod_event_ago: int | None = None
    consolidatable: bool | None = None
    drifted_ago: int | None = None


class PodGroupForm(_Part, frozen=True, kw_only=True, rename="camel"):
    names: list[str]
    pod: Json
    namespace: str = ""
    node_name: str = ""
    node_names: list[str] | None = None
    created_at: int = 0
    owner: str = ""
    started_ago: int | None = None
    unready: bool = False
    terminating: bool = False


class DaemonSetForm(_Part, frozen=True, kw_only=True, rename="camel"):
    name: str
    pod: Json


class InputForm(_Part, frozen=True, kw_only=True, rename="camel"):
    catalogue: str = ""
    node_pools: list[PoolForm] | None = None
    pods: list[PodGroupForm] | None = None
    kind: Literal["", "provisioning", "consolidation"] = ""
    options: OptionsForm | None = None
    nodes: list[NodeForm] | None = None
    daemon_sets: list[DaemonSetForm] | None = None
    pdbs: list[Json] | None = None
    namespaces: list[Json] | None = None


class CaseForm(_Part, frozen=True, kw_only=True, rename="camel"):
    name: str
    input: InputForm
    note: str = ""
    expect: Any = None


class FileForm(_Part, frozen=True, kw_only=True, rename="camel"):
    cases: list[Json]
    group: str = ""
    note: str = ""


def cases_of(content: Any) -> Sequence[Json]:
    """The cases of a file."""
    form: FileForm = _read(content, FileForm, "the file")
    return form.cases


def case_name(case: Json) -> str:
    found = case.get("name")
    return found if isinstance(found, str) else "without a name"


def check_case(case: Json) -> tuple[str, ...]:
    """The fields of a case that are not known; raises if it lacks one or has another type."""
    form = _read(case, CaseForm, f"case {case_name(case)}")
    return tuple(_unknown(case, form, "$"))


def _read(content: Any, form: Any, what: str) -> Any:
    try:
        return msgspec.convert(content, form)
    except msgspec.ValidationError as error:
        raise InvalidCase(f"{what}: {error}") from error


def _unknown(content: Json, form: Any, path: str) -> Iterator[str]:
    known = {f.encode_name: getattr(form, f.name) for f in msgspec.structs.fields(form)}
    for name in sorted(content.keys() - known.keys()):
        yield f"{path}.{name}"
    for name, value in known.items():
        if isinstance(value, _Part):
            yield from _unknown(content[name], value, f"{path}.{name}")
        elif isinstance(value, list):
            for number, each in enumerate(value):
                if isinstance(each, _Part):
                    yield from _unknown(content[name][number], each, f"{path}.{name}[{number}]")
