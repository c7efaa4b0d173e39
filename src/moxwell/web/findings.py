"""Findings of ``moxwell doctor``, as the daemon returns them. Pure."""

from moxwell.preflight.outcome import CheckLevel, RegionCheck

Finding = dict[str, str]
_LEVELS = {CheckLevel.PASS: "ok", CheckLevel.WARN: "remark", CheckLevel.FAIL: "wrong"}


def finding(level: str, what: str, do: str = "") -> Finding:
    return {"level": level, "what": what, "do": do}


def of_check(check: RegionCheck, where: str = "") -> Finding:
    """The finding of a check; ``where`` precedes what was found."""
    return finding(_LEVELS[check.level], f"{where}{check.what}", check.do)
