"""The store's files, as bytes."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_server.voices.stored import (
    MAGIC,
    StoredVoice,
    VoiceContent,
    entry_file,
    file_name,
    id_hash,
    named_as,
    pack,
    pack_entry,
    recording_file,
    unpack,
    unpack_entry,
)

contents = st.builds(
    VoiceContent, st.binary(max_size=200), st.none() | st.text(max_size=20), st.booleans()
)
stored = st.builds(
    StoredVoice,
    name=st.text(min_size=1, max_size=20),
    voice_id=st.text(max_size=20),
    created=st.floats(0, 4e9).map(lambda each: round(each, 3)),
    bytes=st.integers(0, 1 << 40),
    seconds=st.none() | st.floats(0, 1e6),
    ref_text=st.none() | st.text(max_size=20),
    description=st.text(max_size=20),
    consent=st.text(max_size=20),
    x_vector_only=st.booleans(),
    content=st.text("0123456789abcdef", min_size=64, max_size=64),
)


@given(contents)
def test_a_recording_comes_back_as_it_went_in(content: VoiceContent) -> None:
    found = unpack(pack(content), content.hash)
    assert found is not None
    assert found.audio == content.audio
    assert found.hash == content.hash


@given(contents, contents)
def test_recordings_that_differ_have_different_hashes(
    one: VoiceContent, other: VoiceContent
) -> None:
    same = pack(one) == pack(other)
    assert (one.hash == other.hash) == same


@given(contents, st.data())
def test_a_recording_that_was_changed_is_not_used(
    content: VoiceContent, data: st.DataObject
) -> None:
    packed = pack(content)
    cut = data.draw(st.integers(0, len(packed) - 1))
    flipped = bytes([packed[cut] ^ data.draw(st.integers(1, 255))])
    for changed in (packed[:cut], packed[:cut] + flipped + packed[cut + 1 :], packed + b"x"):
        found = unpack(changed, content.hash)
        # The header may be written in more ways than one.
        assert found is None or found.hash == content.hash


@given(contents, st.text(max_size=20), st.floats(0, 9e9))
def test_a_files_name_tells_what_it_is(
    content: VoiceContent, voice_id: str, created: float
) -> None:
    kept = recording_file(file_name(content.hash, voice_id, created), 7)
    assert kept is not None
    assert (kept.content, kept.id_hash, kept.bytes) == (content.hash, id_hash(voice_id), 7)
    assert abs(kept.created - created) < 0.001


@given(stored)
def test_an_entry_comes_back_as_it_went_in(voice: StoredVoice) -> None:
    file = entry_file(voice)
    assert named_as(file) is not None
    assert unpack_entry(pack_entry(voice), file) == voice
    other = replace(voice, name=voice.name + "x")
    assert unpack_entry(pack_entry(other), file) is None


def test_a_header_of_the_wrong_kind_is_damage() -> None:
    for header in (b"{}", b"[]", b"1", b"{", b'{"ref_text": 1, "x_vector_only": false}',
                   b'{"ref_text": null, "x_vector_only": 0}', b"x" * 99_999):  # fmt: skip
        assert unpack(MAGIC + header + b"\nsound", VoiceContent(b"sound").hash) is None


@given(st.binary(max_size=100))
def test_bytes_of_any_kind_are_an_entry_or_none(data: bytes) -> None:
    assert unpack_entry(data, f"{'0' * 32}-{'0' * 64}-{'0' * 13}.json") is None
    assert unpack(data, "0" * 64) is None
