"""An audio output that says to the word what was heard of it."""

from __future__ import annotations

from livekit import rtc
from livekit.agents import utils
from livekit.agents.types import USERDATA_TIMED_TRANSCRIPT, TimedString
from livekit.agents.voice.io import AudioOutput, AudioOutputCapabilities


class HeardOutput(AudioOutput):
    """Stands before a session's audio output; after an interruption the history has what was heard.

    LiveKit's own transcript follows the speech at an even pace. This one is cut by the words'
    times: a word was heard when half of it was played.

    >>> await session.start(agent, room=room)
    >>> session.output.audio = qwen3tts.HeardOutput(session.output.audio)
    """

    def __init__(self, next_in_chain: AudioOutput) -> None:
        """``next_in_chain`` plays."""
        super().__init__(
            label="qwen3tts.HeardOutput",
            capabilities=AudioOutputCapabilities(pause=True),
            next_in_chain=next_in_chain,
            sample_rate=next_in_chain.sample_rate,
        )
        self._pieces: list[TimedString] = []

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        """Play, and keep the words that come along."""
        await super().capture_frame(frame)
        self._pieces.extend(frame.userdata.get(USERDATA_TIMED_TRANSCRIPT, []))
        if self.next_in_chain is not None:
            await self.next_in_chain.capture_frame(frame)

    def flush(self) -> None:
        """The segment is complete."""
        super().flush()
        if self.next_in_chain is not None:
            self.next_in_chain.flush()

    def clear_buffer(self) -> None:
        """Stop playing."""
        if self.next_in_chain is not None:
            self.next_in_chain.clear_buffer()

    def on_playback_finished(
        self,
        *,
        playback_position: float,
        interrupted: bool,
        synchronized_transcript: str | None = None,
    ) -> None:
        """Put the text heard in the place of LiveKit's, where the words are known."""
        if interrupted and self._pieces:
            synchronized_transcript = text_heard(self._pieces, playback_position)
        self._pieces = []
        super().on_playback_finished(
            playback_position=playback_position,
            interrupted=interrupted,
            synchronized_transcript=synchronized_transcript,
        )


def text_heard(pieces: list[TimedString], position_s: float) -> str:
    """The pieces of which at least half was played by then."""
    heard = ""
    for piece in pieces:
        start_s, end_s = piece.start_time, piece.end_time
        if utils.is_given(start_s) and utils.is_given(end_s) and 2 * position_s < start_s + end_s:
            break
        heard += piece
    return heard
