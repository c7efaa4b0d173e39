"""
Sets of label requirements, at most one per label, and their interned algebra.

A :class:`RequirementAlgebra` gives equal sets the same object and caches intersections, so that the
solver compares sets by a number. It is created per solver and holds only memo tables: the result of
every method depends on the arguments alone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from moxwell.scheduling.requirements import LabelRequirement


@dataclass(frozen=True, slots=True, eq=False)
class RequirementSet:
    """Requirements by label key; sets of one algebra are equal if they are the same object."""

    number: int
    entries: Mapping[str, LabelRequirement]
    min_values: tuple[LabelRequirement, ...] = field(default=())

    def get(self, key: str) -> LabelRequirement | None:
        """The requirement of a label; None allows any value."""
        return self.entries.get(key)

    def __str__(self) -> str:
        return ", ".join(sorted(map(str, self.entries.values())))


@dataclass(frozen=True, slots=True)
class RequirementMismatch:
    """Why a node with the requirements ``existing`` cannot satisfy ``incoming``."""

    key: str
    incoming: LabelRequirement
    existing: LabelRequirement | None
    similar: str = ""

    def __str__(self) -> str:
        if self.existing is None:
            hint = f' (typo of "{self.similar}"?)' if self.similar else ""
            return f'label "{self.key}" does not have known values{hint}'
        return f"key {self.key}, {self.incoming} not in {self.existing}"


class RequirementAlgebra:
    """Interns requirement sets and caches their intersections."""

    def __init__(self, well_known: frozenset[str]) -> None:
        self.well_known = well_known
        self._sets: dict[frozenset[LabelRequirement], RequirementSet] = {}
        self._added: dict[tuple[int, int], RequirementSet] = {}
        self._with: dict[tuple[int, LabelRequirement], RequirementSet] = {}
        self._strict: dict[tuple[int, int], tuple[RequirementMismatch, ...]] = {}
        self._lenient: dict[tuple[int, int], tuple[RequirementMismatch, ...]] = {}
        self.empty = self.of(())

    def of(self, requirements: Iterable[LabelRequirement]) -> RequirementSet:
        """The set of these requirements; those of the same label are intersected."""
        entries: dict[str, LabelRequirement] = {}
        for each in requirements:
            known = entries.get(each.key)
            entries[each.key] = each if known is None else each.intersection(known)
        return self._interned(entries)

    def of_labels(self, labels: Iterable[tuple[str, str]]) -> RequirementSet:
        """The set that allows exactly these label values."""
        return self.of(LabelRequirement(k, False, frozenset({v})) for k, v in labels)

    def _interned(self, entries: dict[str, LabelRequirement]) -> RequirementSet:
        identity = frozenset(entries.values())
        found = self._sets.get(identity)
        if found is None:
            least = tuple(r for _, r in sorted(entries.items()) if r.min_values is not None)
            found = RequirementSet(len(self._sets), MappingProxyType(entries), least)
            self._sets[identity] = found
        return found

    def intersection(self, a: RequirementSet, b: RequirementSet) -> RequirementSet:
        """The set that requires both."""
        if a is b:
            return a
        pair = (a.number, b.number)
        found = self._added.get(pair)
        if found is None:
            found = self.of((*a.entries.values(), *b.entries.values()))
            self._added[pair] = found
        return found

    def with_requirement(self, a: RequirementSet, b: LabelRequirement) -> RequirementSet:
        """The set ``a`` with the requirement of one label replaced."""
        pair = (a.number, b)
        found = self._with.get(pair)
        if found is None:
            found = self._interned({**a.entries, b.key: b})
            self._with[pair] = found
        return found

    def without(self, a: RequirementSet, key: str) -> RequirementSet:
        """The set ``a`` without the requirement of one label."""
        return self._interned({k: r for k, r in a.entries.items() if k != key})

    def mismatches(
        self, existing: RequirementSet, incoming: RequirementSet, *, lenient: bool
    ) -> tuple[RequirementMismatch, ...]:
        """
        Why a node with ``existing`` cannot serve ``incoming``; empty if it can.

        ``lenient`` allows well-known labels that ``existing`` does not mention: the instance type
        of a node that does not exist yet decides them.
        """
        table = self._lenient if lenient else self._strict
        pair = (existing.number, incoming.number)
        found = table.get(pair)
        if found is None:
            found = table[pair] = self._compare(existing, incoming, lenient)
        return found

    def _compare(
        self, existing: RequirementSet, incoming: RequirementSet, lenient: bool
    ) -> tuple[RequirementMismatch, ...]:
        for key, each in sorted(incoming.entries.items()):
            allowed = lenient and key in self.well_known
            if not allowed and key not in existing.entries and not each.is_negative:
                similar = self._similar(key, existing, lenient)
                return (RequirementMismatch(key, each, None, similar),)
        return self.conflicts(existing, incoming)

    def conflicts(
        self, existing: RequirementSet, incoming: RequirementSet
    ) -> tuple[RequirementMismatch, ...]:
        """The labels that both mention and that no value satisfies."""
        return tuple(
            RequirementMismatch(key, each, known)
            for key, each in sorted(incoming.entries.items())
            if (known := existing.entries.get(key)) is not None and known.conflicts(each)
        )

    def _similar(self, key: str, existing: RequirementSet, lenient: bool) -> str:
        """A known label that the key may be a misspelling of."""
        suffix = key.partition("/")[2] if "/" in key else key
        known = [*sorted(self.well_known if lenient else ()), *sorted(existing.entries)]
        return next((k for k in known if key in k or k.endswith(suffix)), "")
