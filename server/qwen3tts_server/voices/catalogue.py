"""VoiceCatalogue, the outermost engine wrapper."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace as replaced

from qwen3tts_engine.base import CLONE, Engine, LoadedVoice, Mode, PcmChunk, SynthesisRequest, Voice
from qwen3tts_engine.wrapped import WrappedEngine, cloning, embedder_of, task_of
from qwen3tts_server.keys import EVERYTHING, Grant
from qwen3tts_server.settings import VoiceSettings
from qwen3tts_server.voices.fetch import Fetcher
from qwen3tts_server.voices.library import VoiceLibrary
from qwen3tts_server.voices.names import (
    DEFAULT,
    OPENAI_NAMES,
    QWEN_NAMES,
    NamedOpenings,
    bare,
    check_language,
    checked_name,
    is_content_id,
    key_of,
    spread,
)
from qwen3tts_server.voices.stored import StoredVoice, VoiceContent
from qwen3tts_wire.errors import BadRequest, UnknownVoice
from qwen3tts_wire.names import near_hint, near_voices

SPREAD_MOST = 1024
"""Cached choices: clients may name many languages."""
CLAUSES: tuple[Mode, ...] = ("clause",)


class VoiceCatalogue(WrappedEngine):
    """Engine with further voice names and uploads.

    Names: the engine's id or name, OpenAI's names, ``default``, an upload's name (with or
    without ``clone:``), ``load_voice``'s id, a recording's hash. The event loop never waits for
    the store.
    """

    def __init__(
        self,
        inner: Engine,
        settings: VoiceSettings | None = None,
        *,
        fetcher: Fetcher | None = None,
    ) -> None:
        super().__init__(inner)
        self.settings = settings or VoiceSettings()
        self._library = VoiceLibrary(
            self.settings, lambda: cloning(inner), lambda: embedder_of(inner), fetcher
        )
        self.suggests_brought = True
        """True if errors suggest others' uploads."""
        self._openai = {key_of(name): voice for name, voice in self.settings.openai_voices.items()}
        self._openings = NamedOpenings(inner, self._found_and_ready)
        self._built_in: dict[str, str] = {}
        """Engine ids by name."""
        self._listed: list[Voice] = []
        self._spread: dict[tuple[str, str | None], str | None] = {}
        """Voices of known names by language."""

    # --- life ---

    async def start(self) -> None:
        await self._library.start()
        try:
            await self.inner.start()
        except BaseException:
            await self._library.close()
            raise

    async def close(self) -> None:
        await self._openings.close()
        await self._library.close()
        await self.inner.close()

    # --- names ---

    def resolve(self, voice: str | None, language: str | None = None) -> str | None:
        """Return the inner engine's id; None: its choice.

        Args:
            voice: any name.
            language: of the text; spreads OpenAI's names.

        Raises:
            UnknownVoice: suggests near names.
        """
        wanted = (voice or "").strip()
        key = key_of(wanted)
        if not wanted or key == DEFAULT:
            return self._default(language)
        found = self._own(wanted, key) or self._brought(wanted)
        if found is not None:
            return found
        if self._is_mapped(key):
            return self._of_openai(key, language)
        try:
            # Engines know more names than they list.
            self.inner.check(wanted, None)
        except UnknownVoice as error:
            # A checkpoint has the speakers that it has; other engines stand in for one.
            if key in QWEN_NAMES and task_of(self.inner) is None:
                return self._spread_to(key, language)
            raise self._unknown(wanted, language, error) from None
        return wanted

    def _own(self, wanted: str, key: str) -> str | None:
        found = self._built_in.get(wanted) or self._built_in.get(key)
        if found is None and (voices := list(self.inner.voices())) != self._listed:
            self._listed = voices
            self._spread.clear()
            names: dict[str, str] = {}
            # Of two with one name the first is meant; ids go before names.
            for each in reversed(voices):
                names[key_of(each.name)] = each.id
            for each in reversed(voices):
                names[key_of(each.id)] = each.id
            self._built_in = names | {each.id: each.id for each in voices}
            found = self._built_in.get(wanted) or self._built_in.get(key)
        return found

    def _brought(self, wanted: str) -> str | None:
        index = self._library.index
        named = index.names.get(key_of(bare(wanted)))
        if named is not None:
            return self._library.here(named.content) or named.voice_id
        content = self._library.content_of(wanted)
        if content is None:
            return None
        return self._library.here(content) or wanted

    def _is_mapped(self, key: str) -> bool:
        return key in OPENAI_NAMES or key in self._openai

    def _of_openai(self, key: str, language: str | None) -> str | None:
        meant = self._openai.get(key)
        other = None if meant is None else key_of(meant)
        if meant is None or other is None:
            return self._spread_to(key, language)
        if self._is_mapped(other):
            # Not what that one may mean in its turn: settings may go round in a circle.
            return self._own(meant, other) or self._spread_to(other, language)
        if other == DEFAULT and self._is_mapped(key_of(self.settings.default or "")):
            return self._spread_to(key, language)
        return self.resolve(meant, language)

    def _spread_to(self, key: str, language: str | None) -> str | None:
        if (key, language) not in self._spread:
            polyglot = task_of(self.inner) in ("custom_voice", "voice_design")
            found = spread(key, self.inner.voices(), polyglot=polyglot, language=language)
            if len(self._spread) >= SPREAD_MOST:
                self._spread.clear()
            self._spread[key, language] = found
        return self._spread[key, language] or self._first_brought()

    def _default(self, language: str | None) -> str | None:
        wanted = self.settings.default
        if wanted is not None and language is None and key_of(wanted) != DEFAULT:
            return self.resolve(wanted)
        return self._first_brought()

    def _first_brought(self) -> str | None:
        index = self._library.index
        if not index.names or self.inner.voices():
            return None
        first = next(iter(index.names.values()))
        return self._library.here(first.content) or first.voice_id

    def _unknown(self, wanted: str, language: str | None, error: UnknownVoice) -> UnknownVoice:
        listed = self.voices() if self.suggests_brought else self.inner.voices()
        near = near_hint(near_voices(bare(wanted), listed, language))
        return UnknownVoice(error.message, remedy=near or error.remedy)

    def _may_come(self, voice: str | None) -> bool:
        wanted = (voice or "").strip()
        named = wanted.startswith(CLONE) or is_content_id(wanted)
        return named and self._library.shared and cloning(self.inner) is not None

    def bound(self, voice: str | None, language: str | None = None) -> str | None:
        """Return the id for a text to its end, even if its name changes.

        An unknown name stays.
        """
        try:
            return self.resolve(voice, language)
        except UnknownVoice:
            return voice

    async def find(self, voice: str | None, language: str | None = None) -> str | None:
        try:
            return self.resolve(voice, language)
        except UnknownVoice:
            if not self._library.shared:
                raise
        await self._library.refresh()
        return self.resolve(voice, language)

    # --- what an engine does ---

    def voices(self) -> Sequence[Voice]:
        return self.voices_for(EVERYTHING)

    def voices_for(self, grant: Grant) -> Sequence[Voice]:
        listed = list(self.inner.voices())
        ids = {each.id for each in listed}
        listed += [
            Voice(CLONE + each.name, each.name, "mul", None, each.description or "cloned")
            for each in self._library.index.names.values()
            if CLONE + each.name not in ids and each.name not in ids and grant.may_manage(each)
        ]
        if self.settings.default is not None:
            first = key_of(bare(self.settings.default))
            listed.sort(key=lambda each: first not in (key_of(each.id), key_of(each.name)))
        return listed

    def check(self, voice: str | None, language: str | None) -> None:
        """Raise early what ``synthesize`` would.

        An unknown ``clone:`` name or id may pass in a shared store.
        """
        try:
            resolved = self.resolve(voice, language)
        except UnknownVoice:
            if not self._may_come(voice):
                raise
            return
        if resolved is None or self._library.content_of(resolved) is None:
            self.inner.check(resolved, language)
        elif language is not None:
            check_language(self.inner, resolved, language)

    def modes(self, voice: str | None) -> Sequence[Mode]:
        try:
            resolved = self.resolve(voice)
        except UnknownVoice:
            return CLAUSES
        content = None if resolved is None else self._library.content_of(resolved)
        if content is not None and self._library.here(content) is None:
            return CLAUSES  # All take these; what else it takes is known once it is loaded.
        return self.inner.modes(resolved)

    def synthesize(self, request: SynthesisRequest) -> AsyncGenerator[PcmChunk, None]:
        try:
            voice = self.resolve(request.voice, request.language)
        except UnknownVoice:
            if not self._may_come(request.voice):
                raise
            return self._with_stored(request, None)
        if voice is not None and self._library.content_of(voice) is not None:
            return self._with_stored(request, voice)
        if voice is not None:
            self._library.touch(voice)
        if voice != request.voice:
            request = replaced(request, voice=voice)
        return self.inner.synthesize(request)

    async def _with_stored(
        self, request: SynthesisRequest, voice: str | None
    ) -> AsyncGenerator[PcmChunk, None]:
        if voice is None:
            voice = await self.find(request.voice, request.language)
        content = None if voice is None else self._library.content_of(voice)
        if content is not None:
            voice = (await self._library.ready(content)).voice_id
        chunks = self.inner.synthesize(replaced(request, voice=voice))
        async with contextlib.aclosing(chunks):
            async for chunk in chunks:
                yield chunk

    # --- voices that people bring ---

    async def load_voice(
        self,
        *,
        voice_id: str | None = None,
        ref_audio: bytes | None = None,
        ref_text: str | None = None,
        x_vector_only: bool = False,
    ) -> LoadedVoice:
        cloner = self._library.cloner()
        if ref_audio is not None:
            return await self._library.load(VoiceContent(ref_audio, ref_text, x_vector_only))
        if voice_id is None:
            raise BadRequest("Neither voice_id nor ref_audio is given.", remedy="Give one.")
        found: str | None = voice_id
        # An engine may know ids that it does not list: it is asked for what is not known here.
        with contextlib.suppress(UnknownVoice):
            found = await self.find(voice_id)
        content = None if found is None else self._library.content_of(found)
        if content is not None:
            return await self._library.ready(content)
        return await cloner.load_voice(voice_id=found or voice_id)

    async def add(
        self,
        name: str,
        source: bytes | tuple[float, ...],
        *,
        ref_text: str | None = None,
        x_vector_only: bool | None = False,
        consent: str = "",
        description: str = "",
        replace: bool = False,
        grant: Grant = EVERYTHING,
    ) -> StoredVoice:
        """Store a named voice; replicas have it within ``refresh_s``.

        Args:
            name: 1 to 64 letters, digits, blanks, ``.``, ``_``, ``-``, in any case.
            source: sound file, or embedding checked by ``check_embedding``.
            ref_text: transcript; None: transcribed where possible.
            x_vector_only: only the embedding; None: where no transcript is had.
            consent: record of the speaker's consent.
            description: for people.
            replace: overwrite an existing voice.
            grant: owner, and of voices it may replace.

        Raises:
            VoiceExists, BadRequest, WordsMissing, LimitExceeded, ServerBusy: not stored.
        """
        self._library.cloner()
        name = checked_name(name)
        if self._own(name, key_of(name)) is not None:
            raise BadRequest(
                "The voice's name is that of a voice of the engine.", remedy="Choose another name."
            )
        if isinstance(source, bytes):
            content = VoiceContent(source, ref_text, bool(x_vector_only))
        else:
            content = VoiceContent.of_embedding(source)
        stored = await self._library.add(
            name,
            content,
            consent=consent,
            description=description,
            replace_old=replace,
            grant=grant,
            may_lack_words=x_vector_only is None,
        )
        self._openings.uploaded(name)
        return stored

    async def _found_and_ready(self, name: str) -> str | None:
        found = await self.find(name)
        content = None if found is None else self._library.content_of(found)
        return found if content is None else (await self._library.ready(content)).voice_id

    def stored(self, grant: Grant = EVERYTHING) -> Sequence[StoredVoice]:
        return tuple(filter(grant.may_manage, self._library.index.names.values()))

    async def refresh(self) -> None:
        if self._library.shared:
            await self._library.refresh()

    async def remove(self, name: str, grant: Grant = EVERYTHING) -> StoredVoice:
        """Delete an upload after texts under way.

        Raises:
            UnknownVoice, ServerBusy: not deleted.
        """
        gone = await self._library.remove(bare(name.strip()), grant)
        if all(each.content != gone.content for each in self.stored()):
            self._openings.removed(gone.voice_id)
        return gone

    async def from_reference(
        self,
        ref: str | None,
        *,
        ref_text: str | None = None,
        x_vector_only: bool = False,
        audio: bytes | None = None,
    ) -> str:
        """Load a recording's voice; return its id.

        Args:
            ref: ``data:``, ``http(s):`` or ``file:`` address, or base64.
            audio: the file itself, instead.
            ref_text: transcript; None: transcribed where possible.
            x_vector_only: only the embedding.

        Raises:
            BadRequest, LimitExceeded, ServerBusy: see ``load_voice``.
        """
        return (
            await self.bring(ref, ref_text=ref_text, x_vector_only=x_vector_only, audio=audio)
        ).voice_id

    async def bring(
        self,
        ref: str | None,
        *,
        ref_text: str | None = None,
        x_vector_only: bool = False,
        audio: bytes | None = None,
    ) -> LoadedVoice:
        """Load as ``from_reference``; return the LoadedVoice."""
        self._library.cloner()
        if audio is None:
            if ref is None:
                raise BadRequest("There is no reference recording.", remedy="Send a sound file.")
            audio = await self._library.recording(ref)
        return await self.load_voice(
            ref_audio=audio, ref_text=ref_text, x_vector_only=x_vector_only
        )
