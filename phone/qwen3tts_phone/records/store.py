"""Call records and recordings on disk: names, encoding and retention."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from qwen3tts_pacer.clock import Clock
from qwen3tts_phone.audio.wav import recording_path
from qwen3tts_phone.facts import CallFacts
from qwen3tts_phone.records.log import CallRecordLog
from qwen3tts_phone.records.record import CallRecord
from qwen3tts_phone.records.recording import EncodingFailed, Recording, wav_path, write_encoded
from qwen3tts_phone.settings.records import RecordSettings
from qwen3tts_wire.errors import log_text

logger = logging.getLogger(__name__)

DAY_S = 86_400.0
ABANDONED_AFTER_S = 60.0
"""A WAV unchanged for this time belongs to no call (it is saved each 0.5 s)."""
_NAME = re.compile(
    r"\d{8}-\d{6}-(?:in|out)-[0-9a-f]{8}[A-Za-z0-9+_.-]{0,48}\.(?:wav|opus|opus\.part)"
)
_PARTY = re.compile(r"[^A-Za-z0-9+_-]")


SWEEP_INTERVAL_S = 3600.0


@dataclass(frozen=True, slots=True)
class _StoredFile:
    path: Path
    at: float
    """Time of the last write, seconds since 1970."""
    size: int


class RecordingFolder:
    """Folder of one phone's recordings.

    Only files whose names match its pattern are deleted. The next sweep encodes a WAV left by a
    killed process where the settings ask for Opus.
    """

    def __init__(self, settings: RecordSettings) -> None:
        if settings.audio is None:
            raise ValueError("audio names no folder for recordings")
        self.settings = settings
        self.folder = settings.audio
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = stat.S_IMODE(self.folder.stat().st_mode)
        if mode & 0o077:
            logger.warning(
                "recordings in %s: others may see the names there (mode %o); chmod 700 it",
                self.folder,
                mode,
            )
        self._open: set[Path] = set()
        self._turn = asyncio.Lock()

    def path_for(self, facts: CallFacts) -> Path:
        """Return the WAV file for a call, without the party's number by default.

        Call `finished` with it when the recording is closed.
        """
        at = datetime.fromtimestamp(facts.started_wall, UTC).strftime("%Y%m%d-%H%M%S")
        mark = hashlib.sha256(facts.call_id.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        stem = f"{at}-{facts.direction}-{mark}"
        if self.settings.name_with_party:
            stem += party_in_name(facts.remote_uri)
        for number in range(1, 10_000):
            path = self.folder / f"{stem}{f'-{number}' if number > 1 else ''}.wav"
            taken = path.exists() or path.with_suffix(".opus").exists()
            if path not in self._open and not taken:
                self._open.add(path)
                return path
        raise OSError(f"{self.folder} has 10000 recordings of one call")

    async def finished(self, path: Path) -> tuple[Path, ...]:
        """Encode a closed recording if so set; return its files.

        One at a time, in a thread: calls under way need the cores. On failure the WAV stays.
        """
        try:
            async with self._turn:
                return await asyncio.to_thread(self._finish, path)
        finally:
            self._open.discard(path)

    def sweep(self, now_wall: float) -> list[Path]:
        """Encode leftovers; delete and return what is too old or too much. Blocking."""
        settings = self.settings
        kept = self._kept()
        if settings.audio_format != "wav":
            for each in kept:
                wav = each.path.suffix == ".wav" and each.path not in self._open
                done = each.path.with_suffix(".opus").exists()
                if wav and each.at < now_wall - ABANDONED_AFTER_S and not (done and self._both):
                    self._finish(each.path)
            kept = self._kept()
        gone: list[Path] = []
        total = sum(each.size for each in kept)
        for each in sorted(kept, key=lambda one: one.at):
            stale = each.path.suffix == ".part" and each.at < now_wall - DAY_S
            days = settings.audio_keep_days
            old = bool(days) and each.at < now_wall - days * DAY_S
            much = bool(settings.audio_max_bytes) and total > settings.audio_max_bytes
            if each.path in self._open or not (stale or old or much):
                continue
            try:
                each.path.unlink(missing_ok=True)
            except OSError as error:
                logger.warning("recording %s cannot be deleted: %s", each.path, error.strerror)
            else:
                total -= each.size
                gone.append(each.path)
        return gone

    @property
    def _both(self) -> bool:
        return self.settings.audio_format == "both"

    def _finish(self, path: Path) -> tuple[Path, ...]:
        if self.settings.audio_format == "wav":
            return (path,) if path.exists() else ()
        opus = path.with_suffix(".opus")
        try:
            write_encoded(path, opus, bitrate=self.settings.audio_bitrate)
        except EncodingFailed as error:
            logger.error("%s", log_text(error))
            return (path,) if path.exists() else ()
        times = path.stat()
        os.utime(opus, ns=(times.st_atime_ns, times.st_mtime_ns))  # its age is the call's
        if self._both:
            return path, opus
        path.unlink(missing_ok=True)
        return (opus,)

    def _kept(self) -> list[_StoredFile]:
        kept = []
        for path in self.folder.iterdir():
            if not _NAME.fullmatch(path.name):
                continue
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue  # another process sweeps as well
            if stat.S_ISREG(status.st_mode):
                kept.append(_StoredFile(path, status.st_mtime, status.st_size))
        return kept


def party_in_name(uri: str) -> str:
    user = uri.rpartition("<")[2].partition(":")[2].partition("@")[0].partition(";")[0]
    safe = _PARTY.sub("", user)[:32]
    return f"-{safe}" if safe else ""


class CallStore:
    """A phone's records and recordings, with their retention.

    ``single``: file of the first recording without a folder; further ones get ``-2``, ...
    """

    def __init__(self, settings: RecordSettings, single: Path | None, clock: Clock) -> None:
        self.settings = settings
        self._single = single
        self._clock = clock
        self._count = 0
        self._recordings = RecordingFolder(settings) if settings.audio is not None else None
        self._log = CallRecordLog(settings.log, settings) if settings.log is not None else None
        self._finishing: set[asyncio.Task[CallRecord]] = set()
        self._sweeping: asyncio.Task[None] | None = None

    @property
    def records_audio(self) -> bool:
        return self._recordings is not None or self._single is not None

    def start(self) -> None:
        if self._recordings is not None or self._log is not None:
            self._sweeping = asyncio.create_task(self._sweep(), name="sweep of recordings")

    def path_for(self, facts: CallFacts) -> Path | None:
        if self._recordings is not None:
            return self._recordings.path_for(facts)
        if self._single is None:
            return None
        self._count += 1
        return wav_path(recording_path(self._single, self._count))

    def file(
        self, facts: CallFacts, path: Path | None, asked: Sequence[Recording] = ()
    ) -> asyncio.Task[CallRecord]:
        task = asyncio.create_task(self._file(facts, path, asked), name="record of a call")
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)
        return task

    async def close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.wait([self._sweeping])
        if self._finishing:
            await asyncio.gather(*self._finishing, return_exceptions=True)
        if self._log is not None:
            self._log.close()

    async def _file(
        self, facts: CallFacts, path: Path | None, asked: Sequence[Recording]
    ) -> CallRecord:
        if path is not None:
            facts.recording = (path,)
            if self._recordings is None:
                facts.recording = await self._encoded(path)
            else:
                try:
                    facts.recording = await self._recordings.finished(path)
                except OSError as error:
                    logger.error("a recording could not be finished: %s", log_text(error))
        for each in asked:
            try:
                facts.recording += await each.finished()
            except OSError as error:
                logger.error("a recording could not be finished: %s", log_text(error))
        record = CallRecord.of(facts, self.settings)
        if self._log is not None and facts.logged:
            self._log.append(record)
        return record

    async def _encoded(self, wav: Path) -> tuple[Path, ...]:
        assert self._single is not None
        if wav_path(self._single) == self._single:
            return (wav,)
        target = wav.with_suffix("")
        try:
            await asyncio.to_thread(write_encoded, wav, target, bitrate=self.settings.audio_bitrate)
        except EncodingFailed as error:
            logger.error("%s", log_text(error))
            return (wav,)
        await asyncio.to_thread(wav.unlink, missing_ok=True)
        return (target,)

    async def _sweep(self) -> None:
        origin, count = self._clock.now(), 0
        while True:
            now = time.time()
            try:
                if self._recordings is not None:
                    await asyncio.to_thread(self._recordings.sweep, now)
                if self._log is not None:
                    await asyncio.to_thread(self._log.sweep, now)
            except OSError as error:
                logger.error("recordings could not be swept: %s", log_text(error))
            count += 1
            await self._clock.sleep_until(origin + count * SWEEP_INTERVAL_S)
