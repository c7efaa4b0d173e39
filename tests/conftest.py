"""
What every test has: fixtures over genuine programs, an order by duration, and properties that do
not look at a clock.

The plugins are in ``tools/envtest``.
"""

from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["envtest.plugin", "envtest.longest_first"]

settings.register_profile(
    "shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("shared machine")

CAPTURED_LINES = 60  # of each stream of a failing test; the traceback must not get lost


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep the end of what a test printed."""
    report = yield
    report.sections = [
        (title, "\n".join(text.splitlines()[-CAPTURED_LINES:])) for title, text in report.sections
    ]
    return report
