"""What one client of vLLM-Omni's WebSocket is sent: messages in their order, not yet written."""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Sequence

from qwen3tts_engine.base import SAMPLE_RATE
from qwen3tts_server.dialects import vllm_omni_messages as messages
from qwen3tts_server.dialects.vllm_omni_messages import message
from qwen3tts_server.dialects.vllm_omni_units import Unit, Utterance


class Answers:
    """The messages that wait to be written, and how far the unit being said has come."""

    def __init__(self) -> None:
        self._bytes = self._chunks = 0
        """Of the unit being said: audio and messages of audio so far."""
        self._out: deque[tuple[str | bytes, int]] = deque()
        """What is to be written, with the bytes of audio in it."""
        self._writing = False
        """Whether some of it is on its way: what comes next waits until the client has taken it."""

    @property
    def _unread(self) -> bool:
        """Whether the client has not taken all of it."""
        return self._writing or bool(self._out)

    def _announce(self, unit: Unit) -> None:
        self._bytes = self._chunks = 0
        config = unit.config
        more: dict[str, object] = {}
        if config.stream_audio:
            more["sample_rate"] = SAMPLE_RATE
        if config.word_timestamps:
            more["word_timestamps"] = True
        more = {"format": config.response_format, **more}
        self._put(message("audio.start", **unit.where, sentence_text=unit.text.strip(), **more))

    def _chunk(
        self,
        unit: Unit,
        data: bytes,
        timestamps: Sequence[object] | None,
        start_ms: int,
        count: int = 0,
    ) -> None:
        chunk = message(
            "audio.chunk",
            **unit.where,
            chunk_id=self._chunks,
            chunk_start_ms=start_ms,
            chunk_end_ms=messages.milliseconds(self._bytes),
            sample_rate=SAMPLE_RATE,
            audio_b64=base64.b64encode(data).decode("ascii"),
            timestamps=timestamps,
        )
        self._chunks += 1
        self._out.append((chunk, count))

    def _done(self, unit: Unit, *, error: bool, **more: object) -> None:
        self._put(message("audio.done", **unit.where, total_bytes=self._bytes, error=error, **more))

    def _session_done(self, utterance: Utterance, **more: object) -> None:
        index, sentences = utterance.index, utterance.sentences
        self._put(message("session.done", utterance_index=index, total_sentences=sentences, **more))

    def _put(self, text: str) -> None:
        self._out.append((text, 0))

    def _unsend(self, written: tuple[str | bytes, int]) -> bool:
        self._bytes -= written[1]
        return written[1] > 0

    def data_to_send(self) -> list[str | bytes]:
        """Everything that is to be written now."""
        data = [each for each, _ in self._out]
        self._out.clear()
        self._writing = bool(data)
        return data
