"""Line of simulated callers over SIP and RTP, by a `Phone` of ours."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Literal

from qwen3tts_codecs.table import payload_by_name
from qwen3tts_phone.call.call import Call
from qwen3tts_phone.errors import CalleeUnreachable, CallError
from qwen3tts_phone.media.types import Impairment
from qwen3tts_phone.phone import Phone
from qwen3tts_phone.settings.phone import CallMediaSettings
from qwen3tts_rehearsal.lines import CallEnd, Party
from qwen3tts_rehearsal.scenario import LineSettings
from qwen3tts_speech.sound import LiveSound
from qwen3tts_wire.errors import SpeechError

LEAD_S = 0.3
"""Sound that waits in the media process, which sends it on the exact clock: this process may be
late by as much."""
PUMP_S = 0.01
ANSWER_S = 30.0
"""Longest wait for the answer."""
ENDED_BY: dict[str, Literal["agent", "caller"]] = {"remote": "agent", "local": "caller"}


class SipCallerCall:
    """Answered call over SIP."""

    def __init__(self, call: Call) -> None:
        self._call = call

    @property
    def codec(self) -> str:
        return self._call.codec

    @property
    def rate_hz(self) -> int:
        return payload_by_name(self._call.codec).sample_hz

    @property
    def answered_at(self) -> float:
        return self._call.facts.answered_at or self._call.clock.now()

    async def talk(self, party: Party) -> CallEnd:
        call = self._call
        call.audio.tap(party.heard)
        keys = asyncio.create_task(self._keys(party), name="keys of the agent")
        pump = asyncio.create_task(self._pump(party), name="sound of the caller")
        try:
            await asyncio.wait(
                [pump, asyncio.ensure_future(call.ended())], return_when=asyncio.FIRST_COMPLETED
            )
            if pump.done() and not call.over:
                pump.result()  # raises what broke it
            cause = await call.ended()
        finally:
            keys.cancel()
            pump.cancel()
            call.audio.untap(party.heard)
            await asyncio.gather(keys, pump, return_exceptions=True)
        end = call.facts.end
        by = ENDED_BY.get(end.by) if end is not None else None
        return CallEnd(by or "line", call.facts.ended_at or call.clock.now(), cause)

    async def press(self, keys: str) -> None:
        await self._call.send_dtmf(keys)

    async def hang_up(self) -> None:
        await self._call.hangup()

    async def _pump(self, party: Party) -> None:
        call, rate_hz = self._call, self.rate_hz
        with call.sent_audio() as sent, contextlib.suppress(CallError):
            assert call.speaker is not None
            live = CallerSound(call.speaker, gives_way=False)
            while not call.over:
                while live.delay_s < LEAD_S - 1e-6 and not call.over:
                    at = call.clock.now() + live.delay_s
                    await live.push(party.frame(at), rate_hz)
                for frame in sent.take():
                    party.sent(frame)
                await call.clock.sleep_until(call.clock.now() + PUMP_S)

    async def _keys(self, party: Party) -> None:
        async for key in self._call.dtmf:
            party.key(key)


class CallerSound(LiveSound):
    """Live sound of which nothing is left out: its lead is bounded by who pushes it."""

    def _keep_up(self) -> None: ...

    def _give(self) -> None:
        assert self._spell is not None
        while self._waiting:
            self._spell.push(self._next())


class SipLine:
    """Line to one SIP address.

    Args:
        phone: entered; its calls may be many.
        target: SIP address, or with an account a number or name.
        account: its name; None = the first that can call.
        headers: further header lines of the INVITE.
        answer_s: longest wait for an answer.
    """

    def __init__(
        self,
        phone: Phone,
        target: str,
        *,
        account: str | None = None,
        headers: dict[str, str] | None = None,
        answer_s: float = ANSWER_S,
    ) -> None:
        self._phone = phone
        self._target = target
        self._account = account
        self._headers = headers
        self._answer_s = answer_s

    @property
    def target(self) -> str:
        return self._target

    async def connect(self, settings: LineSettings, seed: int) -> SipCallerCall:
        call = await self._phone.dial(
            self._target,
            dict(self._headers or {}),
            account=self._account,
            media=media_settings(settings, seed),
        )
        try:
            async with asyncio.timeout(self._answer_s):
                return SipCallerCall(await call.up())
        except TimeoutError:
            await call.hangup()
            raise CalleeUnreachable(
                f"The agent at {self._target} did not answer within {self._answer_s:g} s.",
                remedy="Start it, or allow more time with --answer-seconds.",
                why="no_answer",
            ) from None
        except (SpeechError, asyncio.CancelledError):
            await call.hangup()
            raise


def media_settings(settings: LineSettings, seed: int) -> CallMediaSettings:
    impaired = settings.loss > 0.0 or settings.jitter_ms > 0
    return CallMediaSettings(
        codecs=None if settings.codec == "any" else (settings.codec,),
        impairment=Impairment(
            loss=settings.loss / 100,
            burst=settings.burst,
            jitter_s=settings.jitter_ms / 1000,
            seed=seed,
            inbound=settings.impaired == "both",
        )
        if impaired
        else None,
    )
