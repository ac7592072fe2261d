"""What the store keeps, wherever its files lie."""

from __future__ import annotations

import functools
import itertools
import logging
import multiprocessing
import threading
from collections.abc import Callable
from pathlib import Path

import fsspec  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_server.settings import VoiceSettings
from qwen3tts_server.voices.files import FolderFiles, MemoryFiles, UrlFiles, open_files
from qwen3tts_server.voices.names import key_of
from qwen3tts_server.voices.store import DAY_S, VoiceStore
from qwen3tts_server.voices.stored import StoredVoice, VoiceContent, VoiceExists
from qwen3tts_wire.errors import EngineUnavailable, LimitExceeded, ServerBusy, UnknownVoice

NUMBERS = itertools.count()


class Clock:
    """Moves by a millisecond with every look, and when told to."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


@pytest.fixture(params=["memory", "folder", "file url", "url"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Clock], VoiceStore]:
    """Makes stores that share their files."""
    if request.param == "memory":
        files = MemoryFiles()
        return lambda clock: VoiceStore(files, VoiceSettings(), clock)
    url = {
        "folder": str(tmp_path),
        "file url": f"file://{tmp_path}",
        "url": f"memory://voices{next(NUMBERS)}",
    }[request.param]
    return lambda clock: VoiceStore(open_files(url), VoiceSettings(store=url), clock)


def recording(number: int = 0, size: int = 100) -> VoiceContent:
    return VoiceContent(bytes([number]) * size, f"words {number}")


def voice(name: str, content: VoiceContent) -> StoredVoice:
    return StoredVoice(
        name=name,
        voice_id=f"id of {content.hash}",
        created=0.0,
        bytes=len(content.audio),
        seconds=1.5,
        ref_text=content.ref_text,
        description="a voice",
        consent="yes",
    )


def add(
    store: VoiceStore, name: str, content: VoiceContent, *, replace: bool = False
) -> StoredVoice:
    return store.add(voice(name, content), content, replace_old=replace)


def test_what_one_replica_keeps_another_finds(places: Callable[[Clock], VoiceStore]) -> None:
    one, other = places(Clock()), places(Clock())
    kept = add(one, "Anna", recording())
    assert other.index.names == {}
    index = other.refresh()
    assert list(index.names.values()) == [kept]
    assert index.content_of(kept.voice_id) == index.content_of(kept.content) == kept.content
    assert other.fetch(kept.content) == recording()
    assert other.remove("ANNA") == kept
    assert one.refresh().names == {}
    assert one.fetch(kept.content) is None
    assert one.index.bytes == 0


def test_a_name_stands_for_one_voice(places: Callable[[Clock], VoiceStore]) -> None:
    one, other = places(Clock()), places(Clock())
    add(one, "anna", recording(1))
    with pytest.raises(VoiceExists):
        add(other, "ANNA", recording(2))
    # The clock of this one is behind.
    new = add(places(Clock(1_600_000_000.0)), "Anna", recording(2), replace=True)
    for store in (one, other):
        assert list(store.refresh().names.values()) == [new]
        assert store.fetch(recording(1).hash) is None
        assert store.fetch(recording(2).hash) == recording(2)
    with pytest.raises(UnknownVoice):
        one.remove("ben")


def test_two_names_may_have_one_recording(places: Callable[[Clock], VoiceStore]) -> None:
    store = places(Clock())
    add(store, "anna", recording())
    add(store, "ben", recording())
    store.remove("anna")
    assert store.fetch(recording().hash) == recording()
    store.remove("ben")
    assert store.fetch(recording().hash) is None


def test_recordings_without_a_name_are_kept_for_a_while(
    places: Callable[[Clock], VoiceStore],
) -> None:
    clock = Clock()
    store = places(clock)
    assert store.keep(recording(1), "id 1")
    assert store.keep(recording(1), "id of another engine")
    assert store.refresh().content_of("id 1") == recording(1).hash
    assert store.index.content_of("id of another engine") == recording(1).hash
    clock.now += 5 * DAY_S
    assert store.keep(recording(1), "id 1")
    assert store.keep(recording(2), "id 2")
    clock.now += 5 * DAY_S
    assert store.keep(recording(3), "id 3")
    assert store.fetch(recording(1).hash) == recording(1)
    clock.now += 10 * DAY_S
    assert store.keep(recording(4), "id 4")
    assert set(store.index.contents) == {recording(4).hash}


def test_there_is_room_for_names_before_recordings_without_one() -> None:
    store = VoiceStore(MemoryFiles(), VoiceSettings(max_store_bytes=1500), Clock())
    assert all(store.keep(recording(each, 300), f"id {each}") for each in (1, 2, 3))
    named = add(store, "anna", recording(4, 900))
    assert set(store.index.contents) == {recording(3, 300).hash, named.content}
    with pytest.raises(LimitExceeded, match="room"):
        add(store, "ben", recording(5, 900))
    assert not store.keep(recording(6, 900), "id 6")
    assert list(store.index.names) == ["anna"]


def test_what_is_damaged_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = VoiceStore(FolderFiles(tmp_path), VoiceSettings())
    good, bad, worse = (add(store, name, recording(ord(name))) for name in "abc")
    (entry,) = (tmp_path / "names").glob(f"*{bad.content}*")
    entry.write_bytes(entry.read_bytes()[:-7])
    (file,) = (tmp_path / "voices").glob(f"{worse.content}*")
    file.write_bytes(file.read_bytes()[:-1])
    for folder in ("names", "voices"):
        (tmp_path / folder / "stranger").write_bytes(b"x")
        (tmp_path / folder / ".half.part").write_bytes(b"x")
        (tmp_path / folder / "folder").mkdir()
    other = VoiceStore(FolderFiles(tmp_path), VoiceSettings())
    with caplog.at_level(logging.WARNING):
        assert set(other.refresh().names) == {"a", "c"}
        assert other.fetch(worse.content) is None
        assert other.fetch(good.content) == recording(ord("a"))
        other.refresh()
    assert len(caplog.records) == 2
    assert add(other, "b", recording(9)).content == recording(9).hash


def test_a_crash_between_two_writes_leaves_no_half_voice(tmp_path: Path) -> None:
    class Crash(BaseException):
        pass

    class Crashing(FolderFiles):
        left = 0

        def _step(self) -> None:
            if self.left == 0:
                raise Crash
            self.left -= 1

        def write(self, folder: str, name: str, data: bytes) -> None:
            self._step()
            super().write(folder, name, data)

        def remove(self, folder: str, name: str) -> None:
            self._step()
            super().remove(folder, name)

    crashed = False
    for steps in range(8):
        folder = tmp_path / str(steps)
        old = add(VoiceStore(FolderFiles(folder), VoiceSettings()), "anna", recording(1))
        files = Crashing(folder)
        files.left = steps
        crashed = False
        try:
            add(VoiceStore(files, VoiceSettings()), "anna", recording(2), replace=True)
        except Crash:
            crashed = True
        store = VoiceStore(FolderFiles(folder), VoiceSettings())
        (found,) = store.refresh().names.values()
        assert found.content in (old.content, recording(2).hash)
        assert store.fetch(found.content) is not None
        if steps == 0:
            assert crashed
            assert found == old
        new = add(store, "Anna", recording(3), replace=True)
        store.remove("anna")
        assert store.refresh().names == {}
        assert store.fetch(new.content) is None
    assert not crashed


def test_files_are_their_owners_alone(tmp_path: Path) -> None:
    add(VoiceStore(FolderFiles(tmp_path / "new" / "store"), VoiceSettings()), "anna", recording())
    for path in (tmp_path / "new" / "store").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_write_that_fails_leaves_nothing_and_says_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = VoiceStore(FolderFiles(tmp_path), VoiceSettings())

    def full(_: int) -> None:
        raise OSError(28, "No space left on device", str(tmp_path))

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ServerBusy, match="No space") as told:
        add(store, "anna", recording())
    monkeypatch.undo()
    assert str(tmp_path) not in str(told.value)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / ".lock"]
    assert add(store, "anna", recording()).content == recording().hash


def test_stores_that_cannot_be_used_say_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"")
    for place in (f"{tmp_path}/file", f"file://{tmp_path}/file", "nosuch://key:secret@host/x"):
        with pytest.raises(EngineUnavailable) as told:
            open_files(place)
        assert told.value.remedy
        assert "secret" not in str(told.value)
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    with pytest.raises(EngineUnavailable, match="fsspec is missing"):
        open_files("memory://x")


def test_a_url_store_that_fails_is_busy_and_says_no_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = VoiceStore(UrlFiles(f"memory://voices{next(NUMBERS)}"), VoiceSettings())

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("key:secret@host")

    monkeypatch.setattr(fsspec.filesystem("memory").__class__, "ls", broken)
    with pytest.raises(ServerBusy) as told:
        store.refresh()
    assert "secret" not in str(told.value)


@pytest.mark.parametrize("name", ["../x", "a/b", ".x", "", "x\n", "\u00e4"])
def test_a_store_has_only_plain_names(name: str, tmp_path: Path) -> None:
    for files in (FolderFiles(tmp_path), UrlFiles(f"memory://voices{next(NUMBERS)}")):
        with pytest.raises(ValueError, match="plain"):
            files.write("voices", name, b"x")


def test_threads_that_upload_one_name_at_once_leave_one_voice(tmp_path: Path) -> None:
    outcomes: list[object] = []

    def upload(number: int) -> None:
        store = VoiceStore(FolderFiles(tmp_path), VoiceSettings())
        try:
            outcomes.append(add(store, "anna", recording(number)))
        except VoiceExists as error:
            outcomes.append(error)

    threads = [threading.Thread(target=upload, args=(number,)) for number in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    (won,) = (each for each in outcomes if isinstance(each, StoredVoice))
    assert len(outcomes) == 6
    index = VoiceStore(FolderFiles(tmp_path), VoiceSettings()).refresh()
    assert list(index.names.values()) == [won]


def test_without_locks_the_later_upload_of_a_name_is_meant() -> None:
    """Another replica uploads the same name between the look and the write of this one."""

    class Unlocked(UrlFiles):
        meanwhile: Callable[[], object] = staticmethod(lambda: None)

        def write(self, folder: str, name: str, data: bytes) -> None:
            if folder == "names":
                then, self.meanwhile = self.meanwhile, lambda: None
                then()
            super().write(folder, name, data)

    for first_clock, outcome in ((1.6e9, "lost"), (1.8e9, "won")):
        url = f"memory://voices{next(NUMBERS)}"
        files = Unlocked(url)
        one = VoiceStore(files, VoiceSettings(), Clock(first_clock))
        other = VoiceStore(UrlFiles(url), VoiceSettings(), Clock(1.7e9))
        files.meanwhile = functools.partial(add, other, "anna", recording(2))
        if outcome == "lost":
            with pytest.raises(VoiceExists):
                add(one, "anna", recording(1))
        else:
            add(one, "anna", recording(1))
        (found,) = other.refresh().names.values()
        assert found.content == recording(2 if outcome == "lost" else 1).hash
        assert other.fetch(found.content) is not None
        other.remove("anna")
        assert other.refresh().names == {}


def test_files_that_vanish_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = UrlFiles(f"memory://voices{next(NUMBERS)}")
    for files in (url, FolderFiles(tmp_path), MemoryFiles()):
        assert files.read("voices", "x", 10) is None
        files.write("voices", "x", b"12345")
        assert files.read("voices", "x", 5) == b"12345"
        assert files.read("voices", "x", 4) is None
        assert files.listed("voices") == {"x": 5}
        files.remove("voices", "x")
        files.remove("voices", "x")
        assert files.listed("voices") == {}

    def gone(*_: object, **__: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(fsspec.filesystem("memory").__class__, "ls", gone)
    assert url.listed("voices") == {}


def test_a_file_system_without_locks_is_used_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unable(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", unable)
    store = VoiceStore(FolderFiles(tmp_path), VoiceSettings())
    assert add(store, "anna", recording()).name == "anna"


def hold(folder: str, locked: threading.Event, release: threading.Event) -> None:
    with FolderFiles(Path(folder)).locked():
        locked.set()
        release.wait(20)


def test_another_process_is_waited_for_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = multiprocessing.get_context("spawn")
    locked, release = context.Event(), context.Event()
    other = context.Process(target=hold, args=(str(tmp_path), locked, release))
    other.start()
    try:
        assert locked.wait(20)
        monkeypatch.setattr("qwen3tts_server.voices.files.LOCK_TIMEOUT_S", 0.0)
        store = VoiceStore(FolderFiles(tmp_path), VoiceSettings())
        with pytest.raises(ServerBusy, match="locked"):
            add(store, "anna", recording())
    finally:
        release.set()
        other.join(20)
    assert add(store, "anna", recording()).content == recording().hash


names = st.sampled_from(["anna", "ANNA", "ben", "Ben ", "cleo"])
steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["add", "replace"]), names, st.integers(0, 3)),
        st.tuples(st.just("remove"), names, st.just(0)),
        st.tuples(st.just("keep"), st.just(""), st.integers(0, 3)),
    ),
    max_size=14,
)


@settings(deadline=None, max_examples=60)
@given(steps, st.lists(st.booleans(), min_size=14, max_size=14))
def test_two_replicas_see_the_same_voices(
    story: list[tuple[str, str, int]], who: list[bool]
) -> None:
    """For any operations by any owner names are as in a dictionary, with their recordings."""
    files, clock = MemoryFiles(), Clock()
    replicas = [VoiceStore(files, VoiceSettings(), clock) for _ in range(2)]
    model: dict[str, int] = {}
    for (what, name, number), first in zip(story, who, strict=False):
        store, key = replicas[first], key_of(name)
        if what == "keep":
            assert store.keep(recording(number), f"id of {recording(number).hash}")
        elif what == "remove" and key not in model:
            with pytest.raises(UnknownVoice):
                store.remove(name)
        elif what == "remove":
            store.remove(name)
            del model[key]
        elif what == "add" and key in model:
            with pytest.raises(VoiceExists):
                add(store, name, recording(number))
        else:
            add(store, name, recording(number), replace=what == "replace")
            model[key] = number
        for replica in replicas:
            index = replica.refresh()
            found = {key: each.content for key, each in index.names.items()}
            assert found == {key: recording(number).hash for key, number in model.items()}
            assert all(replica.fetch(each) is not None for each in found.values())
