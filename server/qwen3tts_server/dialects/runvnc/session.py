"""Session of a runvnc connection. Pure.

Frames carry no number: speech is one ``audio_start``, its frames, then one ``audio_end`` or
``error`` with ``ends`` = ``speech``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from qwen3tts_engine.base import LoadedVoice
from qwen3tts_server.connection import (
    RESTART,
    STOPPING,
    TOO_BIG,
    Close,
    ConnectionBounds,
    ConnectionSession,
)
from qwen3tts_server.dialects.runvnc.messages import (
    Cancel,
    FrameQueue,
    Generate,
    GenerateStream,
    Init,
    Message,
    Ping,
    TextPiece,
    error_message,
    read,
    say,
)
from qwen3tts_server.settings import ServerSettings
from qwen3tts_text.surrogates import SurrogateJoiner
from qwen3tts_wire.endpoint import Data
from qwen3tts_wire.errors import BadRequest, BadText, LimitExceeded, ServerBusy, SpeechError
from qwen3tts_wire.formats import AudioFormat
from qwen3tts_wire.messages import ContextOpen


@dataclass(frozen=True)
class Load:
    """Load a voice; then ``loaded`` or ``refused``."""

    init: Init


@dataclass(frozen=True)
class Start:
    """Speak; then ``sound``, and ``ended`` or ``failed``."""

    order: ContextOpen


@dataclass(frozen=True)
class Append:
    text: str


@dataclass(frozen=True)
class End:
    """End the current text."""


@dataclass(frozen=True)
class Stop:
    """Stop speech immediately."""


Command = Load | Start | Append | End | Stop | Close


MULAW = AudioFormat("mulaw", 8000)
BURST = 5
"""Frames of a write, not overtaken by a cancel."""
MOST_PARTS = 16_384
"""Commas, colons and brackets of ``init``: millions block all for a second."""
MOST_ESCAPES = 400_000
"""Backslashes: some programs write base64's slash as ``\\/``."""


@dataclass
class _Speech:
    no: int
    frames: FrameQueue
    growing: bool
    """True while text may come."""
    chars: int = 0
    last: str | None = None
    """Message after the last frame, once known."""
    joiner: SurrogateJoiner = field(default_factory=SurrogateJoiner)


class RunvncSession(ConnectionSession[Command]):
    """Decisions for one client.

    Args:
        settings: the server's.
        check: refuses voices and languages, as ``Engine.check``.
        model: name for ``connected``.
        now: connection time.
        errored: called with codes of errors not the engine's.
    """

    def __init__(
        self,
        settings: ServerSettings,
        check: Callable[[str | None, str | None], None],
        model: str,
        now: float,
        errored: Callable[[str], None] = lambda _: None,
    ) -> None:
        bounds = ConnectionBounds(
            message=settings.runvnc.max_init_bytes,
            backlog=settings.backlog_bytes,
            first_message_s=settings.first_message_s,
            idle_s=settings.runvnc.idle_s,
            turn_chars=1,  # what a message starts is answered before the next, where it can be
            turn_writes=1,  # a cancel overtakes all frames but those of one write
        )
        super().__init__(bounds, now)
        self._all = settings
        self._settings = settings.runvnc
        self._check = check
        self._errored = errored
        self._voice = self._settings.default_voice
        self._language: str | None = None
        self._loading: Init | None = None
        self._waiting: deque[tuple[Message, int]] = deque()
        self._waiting_chars = 0
        self._answers: deque[str] = deque()
        self._backlog = 0
        self._speech: _Speech | None = None
        self._count = 0
        self._ahead = max(BURST, int(settings.ahead_ms / 20))
        self._tell(say("connected", model=model, mock_mode=False, optimized=True))

    # --- the client ---

    def _handle(self, data: Data, now: float) -> None:
        try:
            self._received(data)
        except SpeechError as error:
            self._complain(error)

    def _received(self, data: str | bytes) -> None:
        if isinstance(data, bytes):
            raise BadRequest(
                "A binary message came.", remedy="Sound for init goes as base64 in a text message."
            )
        long = len(data) > self._settings.max_message_chars
        if long and (sum(map(data.count, ",:[{")) > MOST_PARTS or data.count("\\") > MOST_ESCAPES):
            raise LimitExceeded(
                f"A message of {len(data)} characters has too many parts.",
                remedy="Only ref_audio_base64 of init should be long.",
            )
        message = read(data)
        if long and not isinstance(message, Init):
            self._too_large(self._settings.max_message_chars)
        elif isinstance(message, Ping):
            self._tell(say("pong"))
        elif isinstance(message, Cancel):
            self._cancel()
        elif self._loading is not None:
            self._wait(message, len(data))
        else:
            self._carry_out(message)

    def _too_large(self, most: int | None = None) -> None:
        most = most or self.bounds.message
        error = LimitExceeded(f"The message has more than {most} characters.")
        self._complain(error, "connection")
        self._close(TOO_BIG, "message too long")

    def _wait(self, message: Message, chars: int) -> None:
        full = len(self._waiting) >= self._settings.max_waiting
        if full or self._waiting_chars + chars > self._settings.max_init_bytes:
            raise ServerBusy("A voice is still being loaded.", remedy="Wait for ready.")
        self._waiting.append((message, chars))
        self._waiting_chars += chars

    def _carry_out(self, message: Message) -> None:
        if isinstance(message, Init):
            self._init(message)
        elif isinstance(message, TextPiece):
            self._piece(message)
        elif isinstance(message, GenerateStream):
            self._begin(message, message.text, growing=False)

    def _cancel(self) -> None:
        before = len(self._waiting)
        self._waiting = deque(each for each in self._waiting if isinstance(each[0], Init))
        self._waiting_chars = sum(chars for _, chars in self._waiting)
        if self._speech is not None:
            self._stop()
        elif len(self._waiting) < before:
            self._tell(say("audio_end"))

    # --- voices ---

    def _init(self, init: Init) -> None:
        self._refuse_when_draining()
        if not init.ref_audio_base64 and not init.voice_id:
            raise BadRequest(
                "init names no voice.",
                remedy="Send ref_audio_base64, or the voice_id of a voice that is here.",
            )
        if (
            init.ref_audio_base64
            and not (init.ref_text or "").strip()
            and not init.x_vector_only
            and not init.auto_transcribe
        ):
            raise BadRequest(
                "init has no ref_text.",
                remedy="Send what is said in the recording, or auto_transcribe, or x_vector_only.",
            )
        self._loading = init
        self._commands.append(Load(init))

    def loaded(self, voice: LoadedVoice, *, x_vector_only: bool, now: float) -> list[Command]:
        """Note a loaded voice; ``x_vector_only``: without transcript."""
        init = self._loading
        if init is None:
            return []
        self._voice = voice.voice_id
        self._language = _named(init.language)
        self._tell(
            say(
                "ready",
                voice_loaded=True,
                voice_id=voice.voice_id,
                cached=voice.cached,
                ref_text=voice.ref_text or init.ref_text or "",
                x_vector_only=True if x_vector_only else None,
            )
        )
        return self._loaded(now)

    def refused(self, error: SpeechError, now: float) -> list[Command]:
        if self._loading is None:
            return []
        self._complain(error)
        return self._loaded(now)

    def _loaded(self, now: float) -> list[Command]:
        self._loading = None
        self._note_activity(now)
        while self._waiting and self._loading is None:
            message, chars = self._waiting.popleft()
            self._waiting_chars -= chars
            try:
                self._carry_out(message)
            except SpeechError as error:
                self._complain(error)
        return self._take_commands()

    # --- speech ---

    def _begin(self, asked: GenerateStream | TextPiece, text: str, *, growing: bool) -> None:
        self._refuse_when_draining()
        if not text.strip() and not growing:
            raise BadText(f"{asked.type}.text is empty.", remedy="Send something to say.")
        self._bound(len(text))
        voice = asked.voice_id or self._voice
        if voice is None:
            raise BadRequest(
                "No voice has been chosen.",
                remedy="Send init first, or name a voice that is here in voice_id.",
            )
        language = _named(asked.language) or self._language
        self._check(voice, language)
        if self._speech is not None:
            self._stop()
        self._count += 1
        first = None if isinstance(asked, TextPiece) else asked.first_frames
        step_ms = self._settings.generate_frame_ms if isinstance(asked, Generate) else 0.0
        self._speech = _Speech(self._count, FrameQueue(step_ms / 1000), growing)
        self._tell(say("audio_start"))
        order = ContextOpen(
            context_id=f"runvnc-{self._count}",
            context_no=self._count,
            voice=voice,
            language=language,
            format=MULAW,
            initial_codec_chunk_frames=first,
        )
        self._commands.append(Start(order))
        self._append(self._speech, text)
        if not growing:
            self._end(self._speech)

    def _piece(self, piece: TextPiece) -> None:
        speech = self._speech
        if speech is None or not speech.growing:
            if not piece.text and not piece.final:
                return
            self._begin(piece, piece.text, growing=not piece.final)
            return
        self._bound(speech.chars + len(piece.text))
        self._append(speech, piece.text)
        if piece.final:
            speech.growing = False
            self._end(speech)

    def _append(self, speech: _Speech, text: str) -> None:
        speech.chars += len(text)
        if text := speech.joiner.push(text):
            self._commands.append(Append(text))

    def _end(self, speech: _Speech) -> None:
        if rest := speech.joiner.finish():
            self._commands.append(Append(rest))
        self._commands.append(End())

    def _bound(self, chars: int) -> None:
        most = self._all.limits.max_text_chars
        if chars > most:
            raise LimitExceeded(
                f"The text has {chars} characters; at most {most} are allowed.",
                remedy="Send it as several texts.",
            )

    def _stop(self) -> None:
        self._speech = None
        self._commands.append(Stop())
        self._tell(say("audio_end"))

    def sound(self, no: int, data: bytes) -> list[Command]:
        speech = self._speech
        if speech is not None and speech.no == no and speech.last is None:
            speech.frames.push(data)
        return self._take_commands()

    def ended(self, no: int) -> list[Command]:
        return self._finish(no, say("audio_end"))

    def failed(self, no: int, error: SpeechError) -> list[Command]:
        return self._finish(no, error_message(error, "speech"))

    def _finish(self, no: int, last: str) -> list[Command]:
        speech = self._speech
        if speech is not None and speech.no == no and speech.last is None:
            speech.growing = False
            speech.frames.finish()
            speech.last = last
        return self._take_commands()

    @property
    def full(self) -> bool:
        return self._speech is not None and len(self._speech.frames) >= self._ahead

    # --- what is written ---

    @property
    def backlog(self) -> int:
        return self._backlog

    def data_to_send(self, now: float) -> list[str | bytes]:
        if self._answers:
            answers: list[str | bytes] = list(self._answers)
            self._answers.clear()
            self._backlog = 0
            return answers
        speech = self._speech
        if speech is None or self._closed:
            return []
        out: list[str | bytes] = [*speech.frames.take(BURST, now)]
        if not speech.frames and speech.last is not None and len(out) < BURST:
            out.append(speech.last)
            self._speech = None
            self._note_activity(now)
        return out

    # --- time and the end ---

    @property
    def busy(self) -> bool:
        return self._speech is not None or self._loading is not None

    def _deadlines(self, now: float) -> list[float | None]:
        speaking = self._speech is not None and self._speech.last is None
        return [self._draining_until] if speaking or self._loading is not None else []

    def next_write(self, now: float) -> float | None:
        return None if self._speech is None else self._speech.frames.due(now)

    def _drain_expired(self, now: float) -> None:
        if self._speech is not None:
            self.failed(self._speech.no, ServerBusy("The server stopped before the end."))
            self._speech.frames.clear()
        self._loading = None

    # --- within ---

    def _tell(self, answer: str) -> None:
        self._answers.append(answer)
        self._backlog += len(answer)

    def _complain(self, error: SpeechError, ends: str = "none") -> None:
        self._errored(error.code)
        self._tell(error_message(error, ends))

    def _close(self, code: int, reason: str) -> None:
        self._closed = True
        self._speech = None
        self._commands += (Stop(), Close(code, reason))

    def _take_commands(self) -> list[Command]:
        idle = self._speech is None and self._loading is None
        if self._draining_until is not None and idle and not self._closed:
            self._close(RESTART, STOPPING)
        return super()._take_commands()


def _named(language: str | None) -> str | None:
    return None if (language or "").strip().lower() in ("", "auto") else language
