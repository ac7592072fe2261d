"""LiveKit Agents' ``TTS`` over ``qwen3tts.speech.v1``."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from livekit.agents import APIConnectOptions, tts, utils
from livekit.agents.types import DEFAULT_API_CONNECT_OPTIONS, NOT_GIVEN, NotGivenOr
from livekit.agents.utils import is_given

from qwen3tts_wire.client import Context, Resume, SpeechClient
from qwen3tts_wire.errors import SpeechError
from qwen3tts_wire.formats import AudioFormat
from qwen3tts_wire.heard import Heard

from .stream import SynthesizeStream

URL = "ws://127.0.0.1:8765/v1/speech"
log = logging.getLogger(__package__)


@dataclass(frozen=True)
class Options:
    """What an utterance is opened with."""

    voice: str | None = None
    language: str | None = None
    speed: float = 1.0
    instructions: str | None = None
    further: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of ``context.open``."""

    def fields(self) -> dict[str, Any]:
        """As ``SpeechClient.open`` takes them."""
        given = {
            "voice": self.voice,
            "language": self.language,
            "speed": self.speed,
            "instructions": self.instructions,
        }
        return {**given, **self.further}


class TTS(tts.TTS[Any]):
    """Speech from a Qwen3-TTS server, made while the text is being written.

    All streams share one connection, each as a context of its own; a lost connection is made anew
    and what is being said goes on.

    >>> session = AgentSession(tts=qwen3tts.TTS(voice="Ryan"), use_tts_aligned_transcript=True, ...)
    """

    def __init__(
        self,
        *,
        url: str = URL,
        api_key: str | None = None,
        voice: str | None = None,
        language: str | None = None,
        speed: float = 1.0,
        instructions: str | None = None,
        sample_rate: int = 24000,
        options: Mapping[str, Any] | None = None,
        resume: Resume | None = None,
    ) -> None:
        """Nothing is opened before ``prewarm`` or the first stream.

        Args:
            url: Where the server is, ``ws://`` or ``wss://``.
            api_key: What the server asks for; None is the environment's ``QWEN3TTS_API_KEY``.
            voice: A voice's id; None is the server's choice.
            language: BCP 47 tag; None is the voice's own.
            speed: Factor on the rate of speech, 0.5 to 2.5.
            instructions: How to speak, in words, where the voice takes that.
            sample_rate: Hertz: 24000, 16000 or 8000.
            options: Further fields of ``context.open``: ``mode``, ``sampling``, ``seed``,
                ``pause_flush_ms`` and others (docs/protocol.md).
            resume: What to do about a lost connection.

        Raises:
            BadRequest: a rate that is not served.
        """
        self.format = AudioFormat("pcm_s16le", sample_rate).checked()
        super().__init__(
            capabilities=tts.TTSCapabilities(streaming=True, aligned_transcript=True),
            sample_rate=sample_rate,
            num_channels=1,
        )
        self._opts = Options(voice, language, speed, instructions, dict(options or {}))
        self._url = url
        self._api_key = api_key
        self._resume = resume or Resume()
        self._client: SpeechClient | None = None
        self._connecting = asyncio.Lock()
        self._warming: asyncio.Task[None] | None = None
        self._streams: weakref.WeakSet[SynthesizeStream] = weakref.WeakSet()
        self._last: Context | None = None

    @property
    def model(self) -> str:
        """What speaks, as the server says; ``unknown`` before it is connected."""
        return "unknown" if self._client is None else self._client.session.model

    @property
    def provider(self) -> str:
        """The kind of server."""
        return "qwen3tts"

    @property
    def is_connected(self) -> bool:
        """Whether an utterance can begin without connecting first."""
        return self._client is not None and self._client.connected

    @property
    def options(self) -> Options:
        """What the next utterance is opened with."""
        return self._opts

    def update_options(
        self,
        *,
        voice: NotGivenOr[str | None] = NOT_GIVEN,
        language: NotGivenOr[str | None] = NOT_GIVEN,
        speed: NotGivenOr[float] = NOT_GIVEN,
        instructions: NotGivenOr[str | None] = NOT_GIVEN,
    ) -> None:
        """Change what the next utterances are opened with."""
        given = {
            "voice": voice,
            "language": language,
            "speed": speed,
            "instructions": instructions,
        }
        changes: dict[str, Any] = {name: each for name, each in given.items() if is_given(each)}
        self._opts = replace(self._opts, **changes)

    def synthesize(
        self, text: str, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS
    ) -> tts.ChunkedStream:
        """Say a text that is there as a whole."""
        return self._synthesize_with_stream(text, conn_options=conn_options)

    def stream(
        self, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS
    ) -> SynthesizeStream:
        """Say a text while it is being written."""
        stream = SynthesizeStream(tts=self, conn_options=conn_options)
        self._streams.add(stream)
        return stream

    def prewarm(self) -> None:
        """Connect now, so that the first utterance need not wait for it."""
        if self._warming is None or self._warming.done():
            self._warming = asyncio.create_task(self._warm(), name="connect to the speech server")

    async def _warm(self) -> None:
        try:
            await self.connected(DEFAULT_API_CONNECT_OPTIONS.timeout)
        except SpeechError as error:
            log.warning("not connected to the speech server yet: %s", error)

    async def connected(self, timeout_s: float) -> SpeechClient:
        """The connection, made if there is none.

        Raises:
            SpeechError: nothing answers in time, or what answers takes nobody.
            TimeoutError: a connection that was lost is not back in time.
        """
        async with self._connecting:
            if self._client is None or self._client.closed:
                self._client = await SpeechClient.connect(
                    self._url, open_timeout=timeout_s, resume=self._resume, api_key=self._api_key
                )
                features = set(self._client.session.features)
                self._capabilities.aligned_transcript = bool(
                    features & {"alignment", "estimated_alignment"}
                )
            client = self._client
        async with asyncio.timeout(timeout_s):
            await client.ready()
        return client

    def heard(self, position_s: float) -> Heard:
        """The text of the last utterance, cut where the listener was after so many seconds.

        ``position_s`` is the ``playback_position`` of LiveKit's ``playback_finished`` event.
        """
        if self._last is None:
            return Heard("", "", 0)
        return self._last.heard(round(position_s * self._last.format.sample_rate))

    def began(self, context: Context) -> None:
        """A stream has opened its context."""
        self._last = context

    async def aclose(self) -> None:
        """End all streams and leave."""
        if self._warming is not None:
            await utils.aio.cancel_and_wait(self._warming)
        for stream in list(self._streams):
            await stream.aclose()
        client, self._client = self._client, None
        if client is not None:
            await client.close()
