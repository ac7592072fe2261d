"""Upstream server: its reachability, voices and models."""

from __future__ import annotations

import asyncio
import json
import logging
import time

from qwen3tts_engine.base import Voice
from qwen3tts_engine.model_names import names_of
from qwen3tts_engine.upstream.backend import MANY, Backend, VoiceOffer, read_voices, with_default
from qwen3tts_engine.upstream.http import (
    HttpAnswer,
    Unreachable,
    api_key,
    get,
    make_client,
    of_status,
    printable,
    tls,
)
from qwen3tts_engine.upstream.openai_rest import OpenAIRest
from qwen3tts_engine.upstream.settings import ANY_VOICE, ServerRoutes, UpstreamSettings
from qwen3tts_engine.upstream.vllm_omni import VllmOmni
from qwen3tts_wire.errors import SpeechError

log = logging.getLogger(__name__)

MOST_MODELS = 64
"""Names of its models that are looked at."""
PROBE_S = 1.0
"""Between two looks for a server that is away."""

_OPTIONS = {"vllm_omni": VllmOmni.options, "openai": OpenAIRest.options}


class UpstreamServer:
    """One upstream server.

    Raises:
        EngineUnavailable: key or certificates cannot be read.
    """

    def __init__(self, settings: UpstreamSettings) -> None:
        self.settings = settings
        self.address = ServerRoutes.of(settings.url)
        self.notes: list[str] = []
        key = api_key(settings)
        context = tls(settings)
        self._client = make_client(settings, key, context)
        self.backend: Backend = (
            VllmOmni(self.address, settings, key, context)
            if settings.kind == "vllm_omni"
            else OpenAIRest(self.address, settings, self._client)
        )
        self.offer = self._offer([])
        """Its voices and languages."""
        self.model = settings.model or "unknown model"
        self.model_ids = names_of([self.model])
        """Names by which a client may ask for it."""
        self._looked = 0.0
        self._refresh: asyncio.Task[None] | None = None
        self.lost = False
        """True if nothing answered there when it was last needed."""
        self._probe: asyncio.Task[None] | None = None
        self._probed = 0.0
        if not settings.tls_verify and settings.url.lower().startswith(("wss", "https")):
            self._note("the upstream server's certificate is not looked at (tls_verify)")
        if key and settings.url.lower().startswith(("ws:", "http:")):
            self._note("the key goes to the upstream server unencrypted")

    @staticmethod
    def usual_options(settings: UpstreamSettings) -> frozenset[str]:
        return _OPTIONS[settings.kind]

    async def look(self) -> None:
        await self._look_at_voices()
        if not self.settings.model:
            await self._look_at_models()
        await self.backend.probe()

    def healthy(self) -> bool:
        """Return whether it last answered; if not, probe in the background."""
        if self.lost and self._probe is None and time.monotonic() - self._probed >= PROBE_S:
            self._probed = time.monotonic()
            self._probe = asyncio.create_task(self._probe_once(), name="upstream probe")
        return not self.lost

    async def _probe_once(self) -> None:
        try:
            await self.look()
        except SpeechError:
            pass  # still away
        else:
            self.lost = False
            log.info("the server at %s is there again", self.address.shown)
        finally:
            self._probe = None

    def refresh_soon(self) -> None:
        if self._own_list or self._refresh is not None:
            return
        if time.monotonic() - self._looked < self.settings.voices_refresh_s:
            return
        self._refresh = asyncio.create_task(self._look_again(), name="upstream voices")

    async def close(self) -> None:
        for task in (self._refresh, self._probe):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})
        await self.backend.close()
        await self._client.aclose()

    # --- looking ---

    async def _look_again(self) -> None:
        try:
            await self._look_at_voices()
        except SpeechError as error:
            log.warning("the upstream server's voices could not be listed again: %s", error.code)
        finally:
            self._refresh = None

    async def _look_at_voices(self) -> None:
        answer = await self._get("/audio/voices")
        self._looked = time.monotonic()
        if answer.status in (401, 403, 429, 503):
            raise of_status(answer.status, answer.body, answer.content_type)
        if self._own_list:
            return
        try:
            if answer.status != 200:
                raise ValueError(f"HTTP {answer.status}")
            voices = read_voices(answer.body)
        except ValueError:
            self._note(
                "the upstream server lists no voices: any name is passed on (set upstream.voices)"
            )
            return
        self.offer = self._offer(voices)

    async def _look_at_models(self) -> None:
        try:
            answer = await self._get("/models")
            data = json.loads(answer.body)["data"] if answer.status == 200 else []
            named = [each for each in data[:MOST_MODELS] if isinstance(each, dict)]
            found = [printable(each.get("id"))[:200] for each in named]
        except Unreachable:
            raise
        except (SpeechError, ValueError, LookupError, TypeError, RecursionError):
            found = []
        self.model = next(iter(found), "") or self.model
        self.model_ids = names_of([self.model, *found])

    async def _get(self, route: str) -> HttpAnswer:
        settings = self.settings
        return await get(
            self._client,
            f"{self.address.base}{route}",
            within_s=settings.connect_timeout_s + settings.stall_s,
            most=settings.max_message_bytes,
        )

    def _offer(self, voices: list[Voice]) -> VoiceOffer:
        settings = self.settings
        if self._own_list:
            voices = [Voice(name, name, MANY) for name in settings.voices]
        return VoiceOffer(
            with_default(voices, settings.voice),
            settings.languages,
            any_voice=ANY_VOICE in settings.voices,
        )

    @property
    def _own_list(self) -> bool:
        return bool(self.settings.voices) and ANY_VOICE not in self.settings.voices

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)
            log.warning("%s", note)
