"""The recording of a page's call, from the wish for it to where it can be fetched."""

from __future__ import annotations

import logging
from collections.abc import Callable

from qwen3tts_phone.call import Call
from qwen3tts_phone.log_text import log_text
from qwen3tts_phone.recording import Recording
from qwen3tts_phone.softphone import protocol
from qwen3tts_phone.softphone.protocol import ServerMessage
from qwen3tts_phone.softphone.recorded import Recorded
from qwen3tts_wire.errors import BadRequest, SpeechError

logger = logging.getLogger(__name__)


class PageRecording:
    """One call's."""

    def __init__(
        self, recorded: Recorded, tell: Callable[[ServerMessage], None], *, allowed: bool
    ) -> None:
        self._recorded = recorded
        self._allowed = allowed
        self._tell = tell
        self._name = ""
        self._recording: Recording | None = None

    def begin(self, call: Call) -> None:
        """Record from the answer on, after the notice that the settings ask for.

        What keeps it from being written is told; the call goes on. Raises BadRequest where
        nothing is recorded here.
        """
        if not self._allowed:
            raise BadRequest("Calls are not recorded here.", remedy="Switch recording off.")
        self._name, path = self._recorded.new()
        try:
            self._recording = call.record(path)
        except OSError as error:
            self._failed(error)

    async def keep(self) -> None:
        """The call is over: the page may fetch it, or is told why not."""
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
