"""
Order in which the URLs of a region are tried: the preferred one first, failed ones last.

Pure state; the transport reports results. After its quarantine a failed URL is offered first to one
request only, so that a dead preferred host delays one request now and then and not all.
"""

from collections.abc import Sequence

from moxwell.clock import Clock

QUARANTINE_SECONDS = 30.0


class Failover:
    """Health of a region's URLs; the first URL is the preferred one."""

    def __init__(self, urls: Sequence[str], clock: Clock) -> None:
        self._urls = tuple(urls)
        self._clock = clock
        self._bad_until: dict[str, float] = {}

    @property
    def current(self) -> str:
        """Return the URL that the next request tries first."""
        now = self._clock.monotonic()
        healthy = (url for url in self._urls if self._bad_until.get(url, now) <= now)
        return next(healthy, self._urls[0])

    def order(self) -> tuple[str, ...]:
        """Return the URLs for one request: healthy ones by preference, then those in quarantine."""
        if not self._bad_until:
            return self._urls
        now = self._clock.monotonic()
        resting = [url for url in self._urls if self._bad_until.get(url, now) > now]
        for url in self._urls:
            if url in self._bad_until and url not in resting:
                self._bad_until[url] = now + QUARANTINE_SECONDS  # this request is its probe
        resting.sort(key=self._bad_until.__getitem__)
        return (*(url for url in self._urls if url not in resting), *resting)

    def failed(self, url: str) -> None:
        """Record that a URL did not answer."""
        self._bad_until[url] = self._clock.monotonic() + QUARANTINE_SECONDS

    def succeeded(self, url: str) -> None:
        """Record that a URL answered."""
        if self._bad_until:
            self._bad_until.pop(url, None)
