"""What may be written where a recording is wanted."""

from __future__ import annotations

import base64
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qwen3tts_server.voices.reference import decode_inline, parse_reference, read_file
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
from qwen3tts_wire.errors import BadRequest, LimitExceeded, SpeechError
from tests.server.voices.world import told

MOST = 1000


def decoded(ref: str, most: int = MOST, **options: int) -> bytes:
    reference = parse_reference(ref, most)
    assert reference.kind == "inline"
    return decode_inline(reference, most, **options)


@given(st.binary(min_size=1, max_size=MOST), st.integers(4, 80), st.integers(1, 200))
def test_base64_comes_out_as_it_went_in(data: bytes, width: int, step: int) -> None:
    text = base64.b64encode(data).decode()
    lines = "\r\n".join(text[at : at + width] for at in range(0, len(text), width))
    for ref in (
        text,
        lines,
        f" {text}\n",
        text.rstrip("="),
        f"data:audio/wav;base64,{text}",
        f"DATA:;BASE64,{lines}",
        "data:audio/wav;codecs=1;base64," + text.replace("+", "%2B").replace("/", "%2F"),
    ):
        assert decoded(ref) == decoded(ref, step=step) == data


@example("AAAA=", 1)
@example("AAAA=====A", 1)
@example("AAA==", 2)
@given(st.text("AB=\n ?", max_size=24), st.integers(1, 9))
def test_the_pieces_in_which_it_is_decoded_do_not_matter(text: str, step: int) -> None:
    found = []
    for pieces in (1 << 16, step):
        try:
            found.append(decoded(text, step=pieces))
        except BadRequest:
            found.append(b"")
    assert found[0] == found[1]


@given(st.text(max_size=60))
def test_any_text_is_a_reference_or_an_error_with_a_remedy(text: str) -> None:
    try:
        reference = parse_reference(text, MOST)
        if reference.kind == "inline":
            assert decode_inline(reference, MOST)
    except SpeechError as error:
        told(error)


@pytest.mark.parametrize(
    "ref",
    ["", " \n", "data:", "data:,hello", "data:audio/wav,AAAA", "data:audio/wav;base64,", "A",
     "AA=A", "====", "AAAA\0", "ftp://h/x", "javascript:1", "gopher://h", "C:\\x.wav", "http://a b",
     "http://\u00e4.de/", "https://h/" + "x" * 5000, "\u00e4\u00e4\u00e4\u00e4"],
)  # fmt: skip
def test_what_is_no_reference_is_refused(ref: str) -> None:
    with pytest.raises(BadRequest):
        decoded(ref)


@pytest.mark.parametrize("size", [MOST + 1, MOST + 3, MOST + 500, 3 * MOST])
def test_recordings_have_a_bound(size: int) -> None:
    text = base64.b64encode(bytes(size)).decode()
    for ref in (text, f"data:audio/wav;base64,{text}"):
        for step in (1 << 16, 100):
            with pytest.raises(LimitExceeded, match="1000 bytes"):
                decoded(ref, step=step)


def test_addresses_are_told_apart() -> None:
    assert parse_reference("https://example.com/a.wav", MOST).kind == "web"
    assert parse_reference("HTTP://example.com/a.wav", MOST).kind == "web"
    assert parse_reference("file:///a/b.wav", MOST).kind == "file"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for references, beside files that are none."""
    made = tmp_path / "refs"
    (made / "deeper").mkdir(parents=True)
    (made / "a b.wav").write_bytes(b"sound")
    (made / "deeper" / "c.wav").write_bytes(b"deep")
    (made / "large.wav").write_bytes(bytes(MOST + 1))
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "refs-too").mkdir()
    (tmp_path / "refs-too" / "x.wav").write_bytes(b"secret")
    (made / "out").symlink_to(tmp_path / "secret")
    (made / "up").symlink_to(tmp_path)
    (made / "in").symlink_to(made / "a b.wav")
    os.mkfifo(made / "pipe")
    return made


@pytest.mark.parametrize(
    ("path", "data"),
    [("a%20b.wav", b"sound"), ("deeper/c.wav", b"deep"), ("deeper/../in", b"sound")],
)
def test_files_of_a_folder_are_read(folder: Path, path: str, data: bytes) -> None:
    assert read_file(f"file://{folder}/{path}", (str(folder),), MOST) == data
    assert read_file(f"file://localhost{folder}/{path}", ("/nowhere", str(folder)), MOST) == data


@pytest.mark.parametrize(
    "address",
    ["{0}/out", "{0}/up/secret", "{0}/../secret", "{0}/%2e%2e/secret", "{0}-too/x.wav",
     "{0}/nothing", "{0}/pipe", "{0}/deeper", "{0}", "", "/dev/zero", "/proc/self/environ",
     "relative.wav", "//host{0}/a%20b.wav", "{0}/a%20b.wav?x", "{0}/a%00b",
     "/etc/passwd", "/../../etc/passwd"],
)  # fmt: skip
def test_no_other_file_is_read_nor_told_to_exist(folder: Path, address: str) -> None:
    start = "file:" if address.startswith("//") else "file://"
    with pytest.raises(BadRequest, match="no such file") as told:
        read_file(start + address.format(folder), (str(folder),), MOST)
    assert str(folder) not in str(told.value)


def test_a_path_that_changes_while_it_is_read_gains_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = os.open

    def swapped(path: str, flags: int) -> int:
        (folder / "a b.wav").unlink()
        (folder / "a b.wav").symlink_to(folder.parent / "secret")
        return true(path, flags)

    monkeypatch.setattr("qwen3tts_server.voices.reference.os.open", swapped)
    with pytest.raises(BadRequest, match="no such file"):
        read_file(f"file://{folder}/a%20b.wav", (str(folder),), MOST)


def test_files_have_a_bound_and_need_a_folder(folder: Path) -> None:
    with pytest.raises(LimitExceeded):
        read_file(f"file://{folder}/large.wav", (str(folder),), MOST)
    with pytest.raises(BadRequest, match="no reference from files"):
        read_file(f"file://{folder}/a%20b.wav", (), MOST)


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
