"""Recordings of pages' calls."""

from __future__ import annotations

import logging
import secrets
import shutil
import tempfile
import wave
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from qwen3tts_phone.call.call import Call
from qwen3tts_phone.records.recording import Recording
from qwen3tts_phone.softphone import messages as protocol
from qwen3tts_phone.softphone.messages import ServerMessage
from qwen3tts_wire.errors import BadRequest, SpeechError, log_text

MAX_OFFERED = 200


class NoSuchRecording(SpeechError):
    code = "no_such_recording"

    def __init__(self) -> None:
        super().__init__(
            "There is no such recording.",
            remedy="Recordings are kept until the softphone ends; record a call again.",
        )


class RecordingStore:
    """Recordings under names that cannot be guessed.

    ``folder``: None = a private one that `close` deletes. Raises OSError for a missing folder.
    """

    def __init__(self, folder: Path | None) -> None:
        self._private = folder is None
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix="mr-qwen3tts-softphone-"))  # 0700
        elif not folder.is_dir():
            raise FileNotFoundError(f"There is no folder {folder} to record into.")
        self.folder = folder
        self._known: OrderedDict[str, Path] = OrderedDict()

    def new(self) -> tuple[str, Path]:
        name = secrets.token_urlsafe(12)
        stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        return name, self.folder / f"{stamp}-web-{name}.wav"

    def done(self, name: str, path: Path) -> float:
        try:
            with wave.open(str(path)) as file:
                seconds = float(file.getnframes() / file.getframerate())
        except (wave.Error, EOFError, ZeroDivisionError) as error:
            raise OSError(f"{path.name} is no complete recording") from error
        self._known[name] = path
        while len(self._known) > MAX_OFFERED:
            _, oldest = self._known.popitem(last=False)
            if self._private:
                oldest.unlink(missing_ok=True)
        return seconds

    def path(self, name: str) -> Path:
        path = self._known.get(name)
        if path is None or not path.is_file():
            raise NoSuchRecording
        return path

    def close(self) -> None:
        self._known.clear()
        if self._private:
            shutil.rmtree(self.folder, ignore_errors=True)


logger = logging.getLogger(__name__)


class PageRecording:
    def __init__(
        self, recorded: RecordingStore, tell: Callable[[ServerMessage], None], *, allowed: bool
    ) -> None:
        self._recorded = recorded
        self._allowed = allowed
        self._tell = tell
        self._name = ""
        self._recording: Recording | None = None

    def begin(self, call: Call) -> None:
        """Record from the answer on; a failure is reported, and the call continues.

        Raises BadRequest if recording is not allowed.
        """
        if not self._allowed:
            raise BadRequest("Calls are not recorded here.", remedy="Switch recording off.")
        self._name, path = self._recorded.new()
        try:
            self._recording = call.record(path)
        except OSError as error:
            self._failed(error)

    async def keep(self) -> None:
        recording = self._recording
        if recording is None:
            return
        try:
            await recording.finished()
            if recording.error is not None:
                raise recording.error
            seconds = self._recorded.done(self._name, recording.wav)
        except SpeechError as error:
            self._tell(protocol.Error(error.code, error.message, error.remedy, "call"))
        except OSError as error:
            self._failed(error)
        else:
            self._tell(protocol.Recorded(self._name, seconds))

    def _failed(self, error: OSError) -> None:
        logger.error("a page's call is not recorded: %s", log_text(error))
        words = "The recording could not be written."
        self._tell(protocol.Error("recording_failed", words, "Check disk and folder.", "call"))
