"""The voices that a connection is waiting for. Pure."""

from __future__ import annotations

from qwen3tts_engine.base import Engine
from qwen3tts_engine.wrapped import cloning
from qwen3tts_wire.errors import BadRequest, ServerBusy
from qwen3tts_wire.messages import VoiceLoad


class VoiceLoads:
    """Requests for a voice that are not answered yet; ``most`` of them at once."""

    def __init__(self, engine: Engine, most: int) -> None:
        self._engine = engine
        self._most = most
        self._open: dict[str, None] = {}

    def begin(self, message: VoiceLoad) -> None:
        """Take a request.

        Raises:
            BadRequest: it cannot be served as it is written, or by this engine.
            ServerBusy: too many are under way.
        """
        if cloning(self._engine) is None:
            raise BadRequest(
                "This engine cannot clone: it makes no voices of recordings.",
                remedy="Name a voice that it lists, or serve a Qwen3-TTS Base checkpoint.",
            )
        if message.request_id in self._open:
            raise BadRequest("voice.load.request_id is that of a request under way.")
        if (message.voice_id is None) == (message.ref_audio is None):
            raise BadRequest("voice.load needs voice_id or ref_audio, one of the two.")
        if len(self._open) >= self._most:
            raise ServerBusy(
                f"{len(self._open)} voices are being loaded on this connection.",
                remedy="Wait for one of them.",
            )
        self._open[message.request_id] = None

    @property
    def under_way(self) -> int:
        """How many are not answered."""
        return len(self._open)

    def end(self, request_id: str) -> bool:
        """A request is answered; False: it was before."""
        return self._open.pop(request_id, 0) is None

    def end_all(self) -> list[str]:
        """The requests that will not be answered any more."""
        ended = list(self._open)
        self._open.clear()
        return ended
