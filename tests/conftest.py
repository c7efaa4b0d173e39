"""
What every test has: fixtures over genuine programs, and properties that do not look at a clock.

What the fixtures are is in ``tools/envtest``.
"""

from hypothesis import HealthCheck, settings

pytest_plugins = ["envtest.plugin"]

settings.register_profile(
    "shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("shared machine")
