"""Calendar events of schedules: what is accepted, when they occur, and what an error names."""

import pytest

from moxwell.lab.proxmox.errors import FormatError
from moxwell.lab.proxmox.schema import calendar_event
from moxwell.lab.proxmox.schema.named_formats import find_check

MINUTE, HOUR, DAY = 60, 3600, 86400
# 1970-01-01 is a Thursday. Most rows are those of Proxmox's own test of the parser.
NEXT = (
    ("*", 0, MINUTE),
    ("*", 59, MINUTE),
    ("*/10", 599, 10 * MINUTE),
    ("*/10", 50 * MINUTE, HOUR),
    ("*/12:0", 13 * HOUR, DAY),
    ("1/12:0/15", 0, HOUR),
    ("1/12:0/15", HOUR + 45 * MINUTE, 13 * HOUR),
    ("1,4,6", 6 * MINUTE, HOUR + MINUTE),
    ("Mon", 4 * DAY, 11 * DAY),
    ("sat..sun", 3 * DAY, 9 * DAY),
    ("Fri..Mon", 0, DAY),
    ("thu", 0, 7 * DAY),
    ("22/1:0", 22 * HOUR + 59 * MINUTE, 23 * HOUR),
    ("*/2:*", HOUR, 2 * HOUR),
    ("20..22:*/30", 22 * HOUR + 30 * MINUTE, 44 * HOUR),
    ("2,4:0,1,3..5", 2 * HOUR + 5 * MINUTE, 4 * HOUR),
    ("mon..fri UTC", 0, DAY),
    ("monday 02:30:15", 0, 4 * DAY + 2 * HOUR + 30 * MINUTE + 15),
    ("*-*-1", 0, 31 * DAY),
    ("2-29", 0, 789 * DAY),
    ("1972-*-* 12:00", 0, 730 * DAY + 12 * HOUR),
    ("hourly", 10, HOUR),
    ("weekly", 0, 4 * DAY),
    ("quarterly", 0, 90 * DAY),
)
REFUSED = (
    ("", "event is empty"),
    ("61", "at '61' - Context(\"date or time specification\")"),
    ("*/61", "at '*/61'"),
    ("0..80", "at '0..80'"),
    ("5..3", "at '5..3'"),
    (" mon 0 0", "at ' 0' - Nom(Eof)"),
    ("noday", "at 'noday' - Context(\"weekday\")"),
    ("12:00 often", "at ' often' - Nom(Eof)"),
)


@pytest.mark.parametrize(("text", "last", "expected"), NEXT)
def test_the_next_occurrence(text: str, last: int, expected: int) -> None:
    assert calendar_event.parse(text).next_after(last) == expected


def test_an_event_in_the_past_never_occurs() -> None:
    assert calendar_event.parse("1969-1-1").next_after(0) is None


@pytest.mark.parametrize(("text", "reason"), REFUSED)
def test_a_text_that_is_no_event_is_refused(text: str, reason: str) -> None:
    with pytest.raises(FormatError) as caught:
        calendar_event.check(text)
    assert str(caught.value).startswith(f"invalid calendar event '{text}' - unable to parse ")
    assert reason in str(caught.value)


PEM = "-----BEGIN CERTIFICATE-----\nQUJD\nREVG\n-----END CERTIFICATE-----\n"
FORMATS = (
    ("pem-certificate", PEM, True),
    ("pem-certificate", f"some text\n{PEM}", True),
    ("pem-certificate", PEM * 2, False),
    ("pem-certificate", PEM.replace("QUJD", "{}"), False),
    ("pem-certificate", "A" * 100_000, False),
    ("pem-certificate-chain", PEM * 2, True),
    ("pem-string", PEM.replace("CERTIFICATE", "EC PRIVATE KEY"), True),
    ("pem-string", PEM.replace("BEGIN", "BEGINS"), False),
    ("pve-acme-domain", "pve.example.com", True),
    ("pve-acme-domain", "pve", False),
    ("pve-acme-domain", "_acme.example.com", False),
    ("pve-acme-alias", "_acme.example.com", True),
    ("pve-acme-domain-list", "a.example.com;b", False),
    ("pve-command-batch", '[{"method": "GET", "path": "/version"}]', True),
    ("pve-command-batch", '[{"method": "PATCH", "path": "/version"}]', False),
    ("pve-command-batch", '[{"method": "GET"}]', False),
    ("pve-command-batch", "{}", False),
    ("pve-command-batch", "[", False),
    ("string-list", "a,b", True),
)


@pytest.mark.parametrize(("name", "value", "is_valid"), FORMATS)
def test_formats_of_certificates_and_batches(name: str, value: str, is_valid: bool) -> None:
    check = find_check(name)
    assert check is not None
    if is_valid:
        check(value)
        return
    with pytest.raises(FormatError):
        check(value)
