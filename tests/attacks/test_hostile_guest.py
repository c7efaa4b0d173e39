"""
What a guest that somebody has taken over answers through its agent, which the daemon reads.

The lines that are read are counted, so no test depends on a time.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moxwell.preflight import guest_connections
from moxwell.preflight.guest_connections import MAX_LINES, parse

LINE = "0: 0100007F:1F90 0200000A:192B 01"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("\n" * 8_000_000, id="empty lines"),
        pytest.param(f"{LINE}\n" * 200_000, id="many connections"),
    ],
)
def test_the_connections_of_a_guest_are_limited(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    lines: list[str] = []
    monkeypatch.setattr(guest_connections, "connection_of", lines.append)
    parse(text)
    assert len(lines) == MAX_LINES


HOSTILE = st.one_of(
    st.text(max_size=50),
    st.builds(
        "0: x {}:{} {}".format,
        st.text("0123456789abcdefG", max_size=70),
        st.text("0123456789abcdefG", max_size=9),
        st.text("0123456789abcdefG", max_size=9),
    ),
)


@given(st.lists(HOSTILE, max_size=5))
def test_any_line_is_a_connection_or_left_out(lines: list[str]) -> None:
    found = parse("\n".join(["head", *lines, LINE]))
    assert [(c.address, c.port) for c in found[-1:]] == [("10.0.0.2", 6443)]
