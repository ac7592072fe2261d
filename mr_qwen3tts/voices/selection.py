"""Voice selection of a command, once connected."""

from __future__ import annotations

from typing import Any

from qwen3tts_speech.line import VoiceOptions
from qwen3tts_wire.client import SpeechClient

from ..connection import Connections
from ..host import Host
from ..records import Records
from ..settings import Settings
from .book import PluginVoices
from .request import requested_voice


class VoiceSelection:
    def __init__(
        self,
        context: Any,
        voice_id: object,
        settings: Settings,
        *,
        host: Host,
        links: Connections,
        voices: PluginVoices,
        records: Records,
    ) -> None:
        self._context = context
        self._voice_id = voice_id
        self._settings = settings
        self._host = host
        self._links = links
        self._voices = voices
        self._records = records
        self._asked: tuple[SpeechClient, str | None] | None = None

    async def __call__(self, client: SpeechClient) -> VoiceOptions:
        if self._links.of(self._settings).state.using_fallback:
            self._records.count("fallbacks")
        persona = await self._host.persona(self._context)
        request = requested_voice(self._voice_id, persona, self._settings)
        options = await self._voices.options(client, request, self._settings)
        self._asked = (client, options.voice)
        return options

    def refused(self) -> None:
        """Prepare the refused voice again."""
        if self._asked is not None and self._asked[1] is not None:
            self._voices.refused(*self._asked)
