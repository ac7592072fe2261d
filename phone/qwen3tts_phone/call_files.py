"""What a phone keeps of its calls on disk: records, recordings, and the sweeping of both."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from pathlib import Path

from qwen3tts_pacer.clock import Clock
from qwen3tts_phone.call_facts import CallFacts
from qwen3tts_phone.call_log import CallRecordLog
from qwen3tts_phone.call_record import CallRecord
from qwen3tts_phone.encoded_file import EncodingFailed, write_encoded
from qwen3tts_phone.log_text import log_text
from qwen3tts_phone.record import recording_path
from qwen3tts_phone.record_settings import RecordSettings
from qwen3tts_phone.recording import Recording, written_as
from qwen3tts_phone.recordings import Recordings

logger = logging.getLogger(__name__)

SWEEP_S = 3600.0


class CallFiles:
    """One phone's.

    Args:
        settings: what is kept.
        single: a file for the recording of the first call, where no folder is given; further ones
            get ``-2``, ``-3``, ...; encoded when the call is over where its ending says so.

    Raises OSError where the folder or the log cannot be made.
    """

    def __init__(self, settings: RecordSettings, single: Path | None, clock: Clock) -> None:
        self.settings = settings
        self._single = single
        self._clock = clock
        self._count = 0
        self._recordings = Recordings(settings) if settings.audio is not None else None
        self._log = CallRecordLog(settings.log, settings) if settings.log is not None else None
        self._finishing: set[asyncio.Task[CallRecord]] = set()
        self._sweeping: asyncio.Task[None] | None = None

    @property
    def records_audio(self) -> bool:
        """Whether calls are recorded."""
        return self._recordings is not None or self._single is not None

    def start(self) -> None:
        """Begin to sweep, now and each hour."""
        if self._recordings is not None or self._log is not None:
            self._sweeping = asyncio.create_task(self._sweep(), name="sweep of recordings")

    def path_for(self, facts: CallFacts) -> Path | None:
        """The WAV for a call's recording; None = it is not recorded."""
        if self._recordings is not None:
            return self._recordings.path_for(facts)
        if self._single is None:
            return None
        self._count += 1
        return written_as(recording_path(self._single, self._count))

    def file(
        self, facts: CallFacts, path: Path | None, asked: Sequence[Recording] = ()
    ) -> asyncio.Task[CallRecord]:
        """A call is over: finish its recordings, write its record; the task gives the record.

        ``path``: what `path_for` gave; ``asked``: recordings that the program began.
        """
        task = asyncio.create_task(self._file(facts, path, asked), name="record of a call")
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)
        return task

    async def close(self) -> None:
        """Wait until all that is over is on disk."""
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
        """Encode the single recording where its ending says so; the file there is."""
        assert self._single is not None
        if written_as(self._single) == self._single:
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
            await self._clock.sleep_until(origin + count * SWEEP_S)
