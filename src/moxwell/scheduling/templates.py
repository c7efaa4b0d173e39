"""
Chooses the Proxmox templates that match: by VMID, name, tags or Kubernetes version. Pure.

Several matches are allowed if they are copies on several hosts or in several regions; placement
then uses the nearest. Tag policies are those of CAPMOX: ``exact`` (the same set), ``uniqueSubset``
(all wanted tags, one template), ``bestSubset`` (all wanted tags, fewest others).
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from moxwell.errors import Invalid, Missing
from moxwell.scheduling.inventory_model import Template

_VERSION = re.compile(r"^v?(\d+)\.(\d+)(?:\.(\d+))?")


class TemplateMissing(Missing):
    """No template matches."""

    reason = "TemplateNotFound"


class TemplateAmbiguous(Invalid):
    """Several different templates match on one host."""

    reason = "TemplateAmbiguous"


@dataclass(frozen=True, slots=True)
class TemplateQuery:
    """How a template is named; the first field that is set counts."""

    vmid: int = 0
    host: str = ""  # restricts the VMID to one host
    name: str = ""
    tags: frozenset[str] = frozenset()
    policy: str = "exact"
    kubernetes: str = ""

    def __str__(self) -> str:
        if self.vmid:
            return f"VMID {self.vmid}" + (f" on host {self.host}" if self.host else "")
        if self.name:
            return f"name {self.name!r}"
        if self.tags:
            return f"tags {','.join(sorted(self.tags))} ({self.policy})"
        return f"Kubernetes version {self.kubernetes or '(none given)'}"


def choose_templates(want: TemplateQuery, templates: Iterable[Template]) -> tuple[Template, ...]:
    """Every matching template, at most one per host; raises if there is none or it is ambiguous."""
    known = tuple(templates)
    found = _match(want, known)
    if not found:
        raise TemplateMissing(f"no template with {want}; {_available(known)}")
    return found


def _match(want: TemplateQuery, known: Sequence[Template]) -> tuple[Template, ...]:
    if want.vmid:
        return _by_vmid(want, known)
    if want.name:
        return _one_per_host([t for t in known if t.name == want.name], want)
    if want.tags:
        return _by_tags(want, known)
    return _by_version(want, known) if want.kubernetes else ()


def _by_vmid(want: TemplateQuery, known: Sequence[Template]) -> tuple[Template, ...]:
    """The template with the VMID, and its copies: same name, same region, other hosts."""
    named = [t for t in known if t.vmid == want.vmid]
    at = [t for t in named if t.key.name == want.host] if want.host else named
    found = at or named  # a template that was migrated still matches
    copies = [
        t
        for t in known
        if t not in found
        and t.name
        and any(t.name == f.name and t.key.region == f.key.region for f in found)
        and all(t.key != f.key for f in found)
    ]
    return tuple(found) + tuple(copies)


def _by_tags(want: TemplateQuery, known: Sequence[Template]) -> tuple[Template, ...]:
    tags = frozenset(t.lower() for t in want.tags)
    exact = [t for t in known if _lower(t) == tags]
    if want.policy == "exact":
        return _one_per_host(exact, want)
    subset = [t for t in known if tags <= _lower(t)]
    if want.policy == "uniqueSubset":
        return _one_per_host(subset, want)
    fewest = min((len(t.tags) for t in subset), default=0)
    return _one_per_host([t for t in subset if len(t.tags) == fewest], want)


def _by_version(want: TemplateQuery, known: Sequence[Template]) -> tuple[Template, ...]:
    """Templates whose tags or name contain the version: ``k8s-1.31.4``, ``ubuntu-kube-v1.31.4``."""
    parts = version(want.kubernetes)
    if parts is None:
        return ()
    return _one_per_host([t for t in known if parts in versions_of(t)], want)


def version(text: str) -> tuple[int, ...] | None:
    """``v1.31.4`` and ``1.31.4+rke2`` as integers."""
    found = _VERSION.match(text.strip())
    return tuple(int(p) for p in found.groups() if p is not None) if found else None


def versions_of(template: Template) -> frozenset[tuple[int, ...]]:
    """The Kubernetes versions in the tags and the name of a template."""
    marked = re.compile(r"(?:k8s|kube|kubernetes)[-_.]?v?(\d+)\.(\d+)\.(\d+)")
    texts = [*template.tags, template.name]
    hits = [m for text in texts for m in marked.finditer(text.lower())]
    return frozenset(tuple(int(p) for p in m.groups()) for m in hits)


def _one_per_host(found: Sequence[Template], want: TemplateQuery) -> tuple[Template, ...]:
    """Allow copies on several hosts, but not two templates on one host."""
    by_host: dict[object, Template] = {}
    for template in sorted(found, key=lambda t: (t.key, t.vmid)):
        other = by_host.setdefault(template.key, template)
        if other is not template:
            raise TemplateAmbiguous(
                f"templates {other.vmid} and {template.vmid} on {template.key} both match {want}; "
                "name one of them or give them tags that differ"
            )
    return tuple(by_host.values())


def _lower(template: Template) -> frozenset[str]:
    return frozenset(t.lower() for t in template.tags)


def _available(known: Sequence[Template]) -> str:
    if not known:
        return "there are no templates"
    shown = [f"{t.key}:{t.vmid} {t.name} [{','.join(sorted(t.tags))}]" for t in known[:8]]
    more = f" and {len(known) - 8} more" if len(known) > 8 else ""
    return f"there are {'; '.join(shown)}{more}"
