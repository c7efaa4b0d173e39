"""The suite's own workings: what is slow to start is started once, not once per worker."""

import pytest


@pytest.mark.xdist_group("together")
def test_a_group_stays_on_one_worker(request: pytest.FixtureRequest) -> None:
    """
    By what xdist adds to the names of tests. If this fails, pytest and xdist do not fit together:
    nothing else would, but every lab and control plane of a module would run on each worker.
    """
    grouped = bool(request.config.getoption("loadgroup", default=False))
    assert request.node.nodeid.endswith("@together") == grouped
