"""Circuit breaker and order of URLs, with a clock that the test controls."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from moxwell.pve.breaker import PAUSES_SECONDS, Breaker
from moxwell.pve.failover import QUARANTINE_SECONDS, Failover


class HandClock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def opened(clock: HandClock) -> Breaker:
    breaker = Breaker(clock, threshold=3)
    for _ in range(3):
        assert breaker.enter()
        breaker.failed()
    return breaker


def test_it_opens_after_a_few_failures_in_a_row() -> None:
    breaker = Breaker(HandClock(), threshold=3)
    for _ in range(2):
        breaker.failed()
    breaker.succeeded()
    for _ in range(2):
        breaker.failed()
    assert breaker.enter()
    breaker.failed()
    assert not breaker.enter()
    assert breaker.is_open
    assert breaker.retry_after == PAUSES_SECONDS[0]


def test_one_probe_after_the_pause_decides() -> None:
    clock = HandClock()
    breaker = opened(clock)
    clock.seconds += PAUSES_SECONDS[0]
    assert breaker.enter()
    assert not breaker.enter()
    breaker.succeeded()
    assert breaker.enter()
    assert not breaker.is_open


def test_a_failed_probe_makes_the_pause_longer() -> None:
    clock = HandClock()
    breaker = opened(clock)
    for pause in (*PAUSES_SECONDS[1:], PAUSES_SECONDS[-1]):
        clock.seconds += 3600
        assert breaker.enter()
        breaker.failed()
        assert breaker.retry_after == pause


def test_a_cancelled_probe_lets_another_request_probe() -> None:
    clock = HandClock()
    breaker = opened(clock)
    clock.seconds += PAUSES_SECONDS[0]
    assert breaker.enter()
    breaker.abandoned()
    assert breaker.enter()


URLS = ("a", "b", "c")


def test_the_preferred_url_is_first_before_and_after_its_quarantine() -> None:
    clock = HandClock()
    failover = Failover(URLS, clock)
    assert failover.order() == URLS
    failover.failed("a")
    assert failover.order() == ("b", "c", "a")
    assert failover.current == "b"
    clock.seconds += QUARANTINE_SECONDS
    assert failover.current == "a"
    assert failover.order() == ("a", "b", "c")  # this request is the probe
    assert failover.order() == ("b", "c", "a")  # the others skip it
    failover.succeeded("a")
    assert failover.order() == URLS


def test_with_all_urls_in_quarantine_the_oldest_failure_is_first() -> None:
    clock = HandClock()
    failover = Failover(URLS, clock)
    for url in ("c", "a", "b"):
        failover.failed(url)
        clock.seconds += 1
    assert failover.order() == ("c", "a", "b")
    assert failover.current == "a"


@given(st.lists(st.tuples(st.sampled_from("fst"), st.sampled_from(URLS)), max_size=20))
def test_every_url_is_in_the_order_once(events: list[tuple[str, str]]) -> None:
    clock = HandClock()
    failover = Failover(URLS, clock)
    for event, url in events:
        if event == "f":
            failover.failed(url)
        elif event == "s":
            failover.succeeded(url)
        else:
            clock.seconds += 17
        assert sorted(failover.order()) == sorted(URLS)
