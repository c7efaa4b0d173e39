"""The frames that announce an address."""

import struct

import pytest

from moxwell.embedded.controlplanes.announcement import announce, announcements

MAC = bytes.fromhex("021122334455")


def test_gratuitous_arp() -> None:
    request, reply = announcements("192.0.2.7", MAC)
    assert request[:14] == b"\xff" * 6 + MAC + b"\x08\x06"
    assert [struct.unpack("!H", frame[20:22])[0] for frame in (request, reply)] == [1, 2]
    for frame in (request, reply):
        assert frame[22:28] == MAC
        assert frame[28:32] == frame[38:42] == bytes([192, 0, 2, 7])


def test_unsolicited_neighbour_advertisement() -> None:
    (frame,) = announcements("2001:db8::7", MAC)
    assert frame[:14] == bytes.fromhex("333300000001") + MAC + b"\x86\xdd"
    message = frame[54:]
    assert message[0] == 136
    assert message[4:8] == bytes([0x20, 0, 0, 0])  # override, not solicited
    assert message[-6:] == MAC
    pseudo = frame[22:54] + struct.pack("!II", len(message), 58) + message
    total = sum(struct.unpack(f"!{len(pseudo) // 2}H", pseudo))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    assert total == 0xFFFF  # the checksum of a correct message


@pytest.mark.parametrize("interface", ["none0", "../x"])
def test_an_interface_that_does_not_exist_is_a_sentence(interface: str) -> None:
    assert "Error" in announce(interface, "192.0.2.7")
