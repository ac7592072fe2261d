"""OpenAI's transcription route, or a server with the same one, as a recogniser."""

from __future__ import annotations

import asyncio
import json
import math
import time

import httpx
import numpy as np

from qwen3tts_agent.chat.client import certificates
from qwen3tts_agent.chat.stream import refusal_words
from qwen3tts_agent.recognition.callback import CallbackRecogniser
from qwen3tts_agent.recognition.settings import TranscriptionSettings, key_for, key_variable
from qwen3tts_agent.recognition.socket_protocol import MOST_TEXT
from qwen3tts_agent.recognition.turns import TurnRecognition
from qwen3tts_codecs.wav import wav_bytes
from qwen3tts_pacer.clock import Clock, LoopClock
from qwen3tts_phone.detection.recogniser import (
    PartialCallback,
    RecogniserReport,
    RecogniserUnavailable,
    RecognitionFailed,
    Samples,
    Transcript,
)
from qwen3tts_wire.errors import ProtocolError, SpeechError
from qwen3tts_wire.fields import JSON
from qwen3tts_wire.whisper.guards import Decoding, is_plausible, silent

MOST_BYTES = 1 << 20
"""Longest body of an answer."""
RETRYABLE_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed."""


def read_text(body: bytes, kind: str, *, plain: bool, seconds: float) -> Transcript:
    """Return the transcript in an answer with status 200.

    ``plain``: text was asked for, not JSON. ``seconds``: length of the audio, which bounds a
    plausible text. Raises RecogniserUnavailable, ProtocolError.
    """
    kind = kind.partition(";")[0].strip().lower()
    if kind == "text/html":
        raise RecogniserUnavailable(
            "a web page answers there, not a recogniser.", remedy="The address usually ends in /v1."
        )
    if len(body) > MOST_BYTES:
        raise ProtocolError("the recogniser's answer is too long for a turn.")
    if plain and kind != "application/json":
        return _believed(Decoding(_clean(body.decode("utf-8", "replace"))), seconds)
    try:
        raw = json.loads(body)
    except (ValueError, RecursionError):
        raise ProtocolError(
            "the recogniser's answer is not JSON.",
            remedy="Check that its address is one of OpenAI's interface; it usually ends in /v1.",
        ) from None
    if not isinstance(raw, dict) or not isinstance(raw.get("text"), str):
        raise ProtocolError("the recogniser's answer holds no text.")
    return _believed(_answer(raw), seconds)


def refusal(status: int, body: bytes, model: str, variable: str) -> SpeechError:
    """Return the typed error for a status other than 200.

    ``variable``: the environment variable for this server's key.
    """
    said = refusal_words(body)
    because = f": {said}" if said else "."
    if status in (401, 403):
        return RecogniserUnavailable(
            f"it asks for a key, or for another one ({status}){because}",
            remedy=f"Put it into the environment's {variable}.",
        )
    if status == 402:
        return RecogniserUnavailable(f"it requires payment ({status}){because}")
    if 300 <= status < 400:
        return RecogniserUnavailable(
            f"it redirects the request ({status}).",
            remedy="Give the final address; the key is not sent on.",
        )
    if status in RETRYABLE_STATUSES or status > 500:
        return RecognitionFailed(
            f"it is overloaded or broken ({status}){because}", remedy="Try again later."
        )
    if status in (404, 405, 501):
        return RecogniserUnavailable(
            f"it has no such path or model ({status}){because}",
            remedy="Check the address, which usually ends in /v1 and is followed by"
            f" /audio/transcriptions there, and the model's name ({model}).",
        )
    return RecogniserUnavailable(
        f"it refused the request ({status}){because}",
        remedy=f"Check model ({model}), language and response_format.",
    )


def _answer(raw: JSON) -> Decoding:
    language = raw.get("language")
    code = language if isinstance(language, str) and language.isprintable() else ""
    text = _clean(raw["text"])
    segments = raw.get("segments")
    known = [_doubt(each) for each in segments] if isinstance(segments, list) else []
    sure = [each for each in known if each is not None]
    if not sure or len(sure) != len(known):
        return Decoding(text, code[:64])
    logprob, no_speech = max(sure, key=lambda each: each[0] - each[1])
    return Decoding(text, code[:64], logprob, no_speech)


def _doubt(segment: object) -> tuple[float, float] | None:
    if not isinstance(segment, dict):
        return None
    values = [segment.get("avg_logprob"), segment.get("no_speech_prob")]
    if any(isinstance(each, bool) or not isinstance(each, int | float) for each in values):
        return None
    try:
        logprob, no_speech = (float(each) for each in values if each is not None)
    except OverflowError:
        return None
    if not (math.isfinite(logprob) and math.isfinite(no_speech)):
        return None
    return min(0.0, logprob), min(1.0, max(0.0, no_speech))


def _believed(answer: Decoding, seconds: float) -> Transcript:
    if not is_plausible(answer, seconds):
        return Transcript("")
    # Without likelihoods there is no confidence.
    sure = answer.confidence if answer.logprob else None
    return Transcript(answer.text.strip(), answer.language, sure)


def _clean(text: str) -> str:
    shown = "".join(char if char.isprintable() else " " for char in text[:MOST_TEXT])
    return " ".join(shown.split())


RATE_HZ = 16_000
"""Rate of the samples that are sent; the models behind such routes work at it."""
KEEPALIVE_S = 300.0
"""Time that an idle connection is kept between two turns."""
RETRY_DELAY_S = 0.25
"""Delay before the second attempt, where the server does not give one."""
MAX_RETRY_DELAY_S = 2.0
"""Longest delay that the caller can wait for; beyond it the turn has failed."""
CHECKED_S = 1.0
"""Length of the audio that a check sends."""


class TranscriptionRecogniser:
    """Recogniser that sends each turn as a WAV file; a retryable failure is retried once.

    >>> recogniser = TranscriptionRecogniser(TranscriptionSettings("http://127.0.0.1:8000/v1"))
    """

    rate_hz = RATE_HZ

    def __init__(
        self,
        settings: TranscriptionSettings | None = None,
        *,
        clock: Clock | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.settings = settings or TranscriptionSettings()
        self._clock = clock or LoopClock()
        https = self.settings.url.lower().startswith("https")
        # Redirects are not followed: they would carry the key and the sound elsewhere.
        self._http = httpx.AsyncClient(
            verify=certificates() if https else False,
            timeout=httpx.Timeout(self.settings.timeout_s, connect=self.settings.connect_s),
            limits=httpx.Limits(keepalive_expiry=KEEPALIVE_S),
            transport=transport,
            trust_env=False,
        )
        self._turns = CallbackRecogniser(
            self._hear,
            rate_hz=RATE_HZ,
            early=self.settings.early,
            timeout_s=self.settings.timeout_s,
            at_once=self.settings.at_once,
            waiting=self.settings.most_waiting,
        )

    async def warm(self) -> None:
        """Have a second of silence transcribed, with which the server loads its model.

        Raises RecogniserUnavailable, RecognitionFailed.
        """
        await self._ask(np.zeros(round(CHECKED_S * RATE_HZ), np.int16))

    async def open(self, on_partial: PartialCallback | None = None) -> TurnRecognition:
        return await self._turns.open(on_partial)

    async def close(self) -> None:
        await self._turns.close()
        await self._http.aclose()

    async def _hear(self, samples: Samples, rate_hz: int) -> Transcript:
        if silent(samples, rate_hz):
            return Transcript("")
        return await self._ask(samples)

    async def _ask(self, samples: Samples) -> Transcript:
        shown = self.settings.shown
        try:
            try:
                return await self._once(samples)
            except _TryAgain as again:
                await self._clock.sleep_until(self._clock.now() + again.wait_s)
                return await self._once(samples)
        except _TryAgain as again:
            error = again.error
        except SpeechError as found:
            error = found
        message = error.message[:1].lower() + error.message[1:]
        kind = RecognitionFailed if isinstance(error, ProtocolError) else type(error)
        raise kind(f"The recogniser at {shown}: {message}", remedy=error.remedy) from None

    async def _once(self, samples: Samples) -> Transcript:
        settings = self.settings
        try:
            key = key_for(settings.url, settings.api_key)
        except ValueError as error:
            raise RecogniserUnavailable(
                f"{error}.",
                remedy=f"Put it into the environment's {key_variable(settings.url)}.",
            ) from None
        try:
            async with (
                asyncio.timeout(settings.connect_s + settings.timeout_s),
                self._http.stream(
                    "POST",
                    settings.route,
                    data=settings.form(),
                    files={"file": ("turn.wav", _wav(samples), "audio/wav")},
                    headers={
                        "Accept-Encoding": "identity",
                        **({"Authorization": f"Bearer {key}"} if key else {}),
                    },
                ) as response,
            ):
                body = await _body(response)
        except httpx.ConnectTimeout:
            raise RecognitionFailed(
                f"no connection within {settings.connect_s:g} s.",
                remedy="Check the address and the network.",
            ) from None
        except (httpx.TimeoutException, TimeoutError):
            raise RecognitionFailed(
                f"no answer within {settings.timeout_s:g} s.",
                remedy="It may be loading or overloaded; use a smaller model there.",
            ) from None
        except (httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError) as error:
            raise _TryAgain(
                RecognitionFailed(
                    f"it cannot be reached: {str(error).rstrip('.') or type(error).__name__}.",
                    remedy="Check the address, and whether its server runs.",
                )
            ) from None
        except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL) as error:
            raise RecognitionFailed(f"the request broke: {type(error).__name__}.") from None
        if response.status_code != 200:
            refused = refusal(
                response.status_code, body, settings.model, key_variable(settings.url)
            )
            if response.status_code in RETRYABLE_STATUSES:
                raise _TryAgain(refused, response.headers.get("retry-after", ""))
            raise refused
        return read_text(
            body,
            response.headers.get("content-type", ""),
            plain=settings.response_format == "text",
            seconds=len(samples) / RATE_HZ,
        )


async def check(settings: TranscriptionSettings) -> RecogniserReport:
    recogniser = TranscriptionRecogniser(settings)
    try:
        await recogniser.warm()
        began = time.monotonic()
        await recogniser.warm()
        wait_s = time.monotonic() - began
    finally:
        await recogniser.close()
    return RecogniserReport(
        kind="openai",
        model=settings.model,
        language=", ".join(settings.languages),
        address=settings.shown,
        real_time_factor=wait_s / CHECKED_S,
        wait_s=wait_s,
    )


class _TryAgain(Exception):
    """Retryable failure of a request; to be retried after ``wait_s`` seconds."""

    def __init__(self, error: SpeechError, after: str = "") -> None:
        super().__init__(error.message)
        self.error = error
        said = (
            float(after)
            if after.isascii() and after.isdigit() and len(after) < 6
            else RETRY_DELAY_S
        )
        self.wait_s = min(MAX_RETRY_DELAY_S, max(RETRY_DELAY_S, said))


def _wav(samples: Samples) -> bytes:
    data = np.ascontiguousarray(samples).astype("<i2").tobytes()
    return wav_bytes(data, RATE_HZ)


async def _body(response: httpx.Response) -> bytes:
    encoding = response.headers.get("content-encoding", "identity").lower()
    if encoding != "identity":
        raise ProtocolError(f"its answer is compressed ({encoding}), which was not asked for.")
    data = b""
    async for chunk in response.aiter_bytes():
        data += chunk
        if len(data) > MOST_BYTES:
            return data[: MOST_BYTES + 1]
    return data
