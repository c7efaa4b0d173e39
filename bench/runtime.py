"""
Benchmark of the runtime's cache against a bare loop, kopf and the official client.

Run: ``python bench/runtime.py`` (peers need the extra ``bench``; missing ones are named). A server
with prepared responses serves 5,000 objects and 20,000 events; each contestant is a process and is
charged the CPU it used, without imports. Rounds alternate and the minimum of each counts, so that a
busy machine affects all alike. Only ratios are reported. Exits with 1 if the limit is missed.
"""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
OBJECTS, EVENTS = 5_000, 20_000
LIMIT = 1.3
CONTESTANTS = {
    "bare": (5, ""),
    "cache": (5, ""),
    "cache+indexes+queue": (3, ""),
    "official": (1, "kubernetes"),
    "kopf": (1, "kopf"),
}


def measure(who: str, url: str) -> dict[str, float]:
    """Run one contestant once."""
    command = [
        sys.executable,
        str(HERE / "runtime_clients.py"),
        who,
        url,
        str(OBJECTS),
        str(EVENTS),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise SystemExit(f"{who} failed:\n{done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def run(url: str) -> dict[str, dict[str, float]]:
    """The minimum of each over alternating rounds."""
    best: dict[str, dict[str, float]] = {}
    for number in range(max(rounds for rounds, _ in CONTESTANTS.values())):
        for who, (rounds, needs) in CONTESTANTS.items():
            if number >= rounds or (needs and importlib.util.find_spec(needs) is None):
                continue
            found = measure(who, url)
            if who not in best or found["total"] < best[who]["total"]:
                best[who] = found
    return best


def report(best: dict[str, dict[str, float]]) -> None:
    """A table of ratios to the bare loop."""
    base = best["bare"]
    print(f"{OBJECTS} objects listed, {EVENTS} events watched; CPU as a multiple of bare")
    print(f"{'':22}{'list':>8}{'watch':>8}{'total':>8}{'KiB/object':>12}")
    for who in CONTESTANTS:
        if who not in best:
            print(f"{who:22}    not installed")
            continue
        ratios = [best[who][part] / base[part] for part in ("list", "watch", "total")]
        shown = "".join(f"{ratio:8.2f}" for ratio in ratios)
        print(f"{who:22}{shown}{best[who]['kib_per_object']:12.1f}")


def main() -> int:
    """Run everything; returns 1 if the cache exceeds its limit."""
    command = [sys.executable, str(HERE / "runtime_server.py"), str(OBJECTS), str(EVENTS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            best = run(f"http://127.0.0.1:{int(server.stdout.readline())}")
        finally:
            server.terminate()
    report(best)
    ratio = best["cache"]["total"] / best["bare"]["total"]
    print(f"cache / bare = {ratio:.2f} (at most {LIMIT})")
    return int(ratio > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
