"""Services that a softphone's pages share."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from importlib import metadata
from typing import TYPE_CHECKING, Any, Protocol

from qwen3tts_pacer.clock import Clock
from qwen3tts_phone.call.core import CallCore, CallVoice
from qwen3tts_phone.detection.recogniser import RecogniserPool
from qwen3tts_phone.records.store import CallStore
from qwen3tts_phone.settings.records import RecordSettings
from qwen3tts_phone.softphone.engines import SpeechEngine, SpeechEngines
from qwen3tts_phone.softphone.entries import CallEntry, IceEntry, LimitsEntry, SipEntry
from qwen3tts_phone.softphone.messages import MAX_TYPED_CHARS, Welcome
from qwen3tts_phone.softphone.recordings import RecordingStore
from qwen3tts_phone.softphone.settings import SoftphoneSettings
from qwen3tts_phone.softphone.webrtc.call import ArrivalHistory, WebCall, web_call_facts
from qwen3tts_phone.softphone.webrtc.offer import CodecChoice
from qwen3tts_phone.softphone.webrtc.settings import WebRtcSettings
from qwen3tts_speech.link import VoiceOptions
from qwen3tts_speech.record_sinks import RecordSink, open_records
from qwen3tts_wire.errors import BadRequest, ServerBusy
from qwen3tts_wire.process import heap

if TYPE_CHECKING:
    from qwen3tts_phone.call.call import Call
    from qwen3tts_phone.softphone.gateway import Gateway

REFRESH_S = 1.0


class CallAgent(Protocol):
    """Agent on the pages' calls, such as `qwen3tts_agent.Agent`."""

    def talk(self, call: Call) -> Coroutine[Any, Any, object]: ...


class SoftphoneServices:
    def __init__(
        self,
        settings: SoftphoneSettings,
        clock: Clock,
        agent: CallAgent | None,
        gateway: Gateway | None,
        sink: RecordSink | None,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.agent = agent
        self.gateway = gateway
        self.engines = SpeechEngines(settings.engines)
        self.calls: set[WebCall] = set()
        self.recognisers = RecogniserPool()
        self.recorded: RecordingStore
        self._sink = sink
        self._files: CallStore
        self._learnt = ArrivalHistory()
        self._reserved = 0

    async def open(self, stack: AsyncExitStack) -> None:
        stack.push_async_callback(self.engines.close)
        await self.engines.open()
        if self.settings.voice or self.settings.language or self.settings.options:
            await self.engines.all[0].link.check(self.settings.speech)
        self.recorded = RecordingStore(self.settings.recordings)
        stack.callback(self.recorded.close)
        self._sink = await open_records(
            stack, self.settings.latency_log, self.settings.otel, self._sink
        )
        self._files = CallStore(self.settings.records or RecordSettings(), None, self.clock)
        stack.push_async_callback(self._files.close)
        self._files.start()
        stack.push_async_callback(self.recognisers.close)

    @property
    def now_ms(self) -> float:
        return self.clock.now() * 1000

    # --- calls

    async def web_call(
        self,
        sdp: str,
        codec: str,
        engine: SpeechEngine,
        options: VoiceOptions,
        *,
        host: str,
        program: str,
    ) -> tuple[WebCall, str]:
        """Accept a page's offer; returns the call and the SDP answer.

        Raises ServerBusy (``max_calls`` are running), CallError (unusable offer).
        """
        if len(self.calls) + self._reserved >= self.settings.max_calls:
            raise ServerBusy(
                f"All {self.settings.max_calls} calls are in use.",
                remedy="Wait until one has ended, or start the softphone with --max-calls.",
            )
        facts = web_call_facts(self.clock, host=host, user_agent=program)
        facts.keep_transcript = self._files.settings.transcript
        voice = CallVoice(engine.link, options, self._sink)
        body = CallCore(facts, self.clock, voice, self._files, self.recognisers)
        self._reserved += 1
        try:
            call, answer = await WebCall.made(
                body,
                sdp,
                codec=self.codec(codec),
                settings=WebRtcSettings(ice_servers=self.settings.ice_servers),
                learnt=self._learnt,
            )
        finally:
            self._reserved -= 1
        self.calls.add(call)
        return call, answer

    def forget(self, call: WebCall) -> None:
        self.calls.discard(call)
        if not self.calls:
            heap.sweep_if_idle()

    def options(
        self, engine: SpeechEngine, voice: str | None, language: str | None
    ) -> VoiceOptions:
        base = self.settings.speech
        if voice is None and language is None and engine is self.engines.all[0]:
            return base
        return replace(base, voice=voice, language=language)

    def codec(self, requested: str) -> CodecChoice:
        """Return the codec of a page's call; raises BadRequest.

        ``auto`` prefers Opus unless the settings put PCMU first.
        """
        offered = self.settings.codecs
        if requested == "auto":
            requested = "auto" if offered[0] == "opus" and len(offered) > 1 else offered[0]
        elif requested not in offered:
            raise BadRequest(
                f"{requested} is not offered.", remedy=f"Choose {' or '.join(offered)}."
            )
        return requested

    async def refresh(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(REFRESH_S):
                await self.engines.query()

    # --- messages

    def welcome(self, session: str, *, resumed: bool, call_id: str | None) -> Welcome:
        return Welcome(
            session,
            package_version(),
            self.engines.entries(),
            self.settings.codecs,
            self.agent is not None,
            self.settings.recording,
            self.sip(),
            self.call_entries(),
            self.limits(),
            self.now_ms,
            resumed,
            call_id,
            tuple(
                IceEntry(each.url, each.username, each.credential)
                for each in self.settings.ice_servers
            ),
        )

    def sip(self) -> SipEntry:
        gateway = self.gateway
        if gateway is None:
            return SipEntry()
        return SipEntry(gateway.can_dial, gateway.can_listen, gateway.accounts)

    def call_entries(self) -> tuple[CallEntry, ...]:
        return tuple(self.gateway.calls.shown()) if self.gateway is not None else ()

    def limits(self) -> LimitsEntry:
        settings = self.settings
        return LimitsEntry(
            settings.text_chars,
            MAX_TYPED_CHARS,
            settings.upload_bytes,
            settings.upload_s,
            settings.resume_s * 1000,
            settings.max_calls,
        )


def package_version() -> str:
    try:
        return metadata.version("mr_qwen3tts")
    except metadata.PackageNotFoundError:
        return ""
