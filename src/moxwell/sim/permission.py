"""
What a route asks of its caller before anything else, in the forms PVE declares them.

Checks run on the raw parameters, before these are verified, as in PVE. A template such as
``/vms/{vmid}`` is filled from the parameters; where one is missing, the check fails.
"""

import re

from moxwell.sim.call import Call
from moxwell.sim.fault import PveError, forbidden
from moxwell.sim.route import Check

_PLACE = re.compile(r"\{([\w-]+)\}")


def anyone(call: Call) -> None:
    """Every user that is logged in; the handler looks closer."""


def perm(template: str, *privs: str, any_of: bool = False, only_with: str | None = None) -> Check:
    """All (or any) of the privileges on a path; skipped where ``only_with`` is not given."""

    def check(call: Call) -> None:
        if only_with is not None and only_with not in call.params:
            return
        call.check(fill(template, call), *privs, any_of=any_of)

    return check


def both(*checks: Check) -> Check:
    """Every check must pass."""

    def check(call: Call) -> None:
        for one in checks:
            one(call)

    return check


def either(*checks: Check) -> Check:
    """One check must pass; the last one's refusal is the answer."""

    def check(call: Call) -> None:
        problem: PveError | None = None
        for one in checks:
            try:
                one(call)
            except PveError as refused:
                problem = refused
            else:
                return
        if problem is not None:
            raise problem

    return check


def fill(template: str, call: Call) -> str:
    """The template with its placeholders replaced by parameters of the call."""

    def one(match: re.Match[str]) -> str:
        if match[1] not in call.params:
            raise forbidden()
        return str(call.params[match[1]])

    return _PLACE.sub(one, template)
