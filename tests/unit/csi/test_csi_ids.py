"""Volume ids, disk names and disk identities."""

from hypothesis import given
from hypothesis import strategies as st

from moxwell.csi import ids, sizes
from moxwell.csi.errors import OutOfRange
from moxwell.csi.ids import VolumeId

words = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=20)
volumes = st.builds(VolumeId, words, words | st.just(""), words, words)


@given(volumes)
def test_volume_ids_round_trip(volume: VolumeId) -> None:
    assert ids.get_volume(str(volume)) == volume


@given(volumes, volumes)
def test_different_volumes_have_different_identities(one: VolumeId, two: VolumeId) -> None:
    assert (one == two) == (one.identity == two.identity)
    assert len(one.identity.serial) <= 20
    assert len(one.identity.wwn) == 18


@given(st.text(min_size=1, max_size=200), st.text(min_size=1, max_size=200))
def test_safe_names_are_short_and_distinct(one: str, two: str) -> None:
    safe = ids.safe_name(one)
    assert len(safe) <= ids.LONGEST_NAME
    assert not set(safe) & set(" /\n\t")
    assert (one == two) == (safe == ids.safe_name(two))


@given(words, volumes)
def test_a_snapshot_disk_name_contains_its_source(name: str, source: VolumeId) -> None:
    disk = ids.snapshot_name(9999, name, str(source))
    assert ids.is_snapshot_of(disk, str(source))
    assert not ids.is_snapshot_of(disk, f"{source}x")
    assert "-pvc-" in disk


@given(st.integers(0, 1 << 44), st.integers(0, 1 << 44))
def test_chosen_sizes_satisfy_the_capacity_range(required: int, limit: int) -> None:
    try:
        size = sizes.choose_size(required, limit)
    except OutOfRange:
        return
    assert size >= required
    assert size % sizes.MIB == 0
    assert not limit or size <= limit
