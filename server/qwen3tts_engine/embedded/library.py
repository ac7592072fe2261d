"""eSpeak NG through ctypes. Its state is global: one Library a process."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# speak_lib.h of eSpeak NG 1.52
AUDIO_OUTPUT_SYNCHRONOUS = 2
INITIALIZE_DONT_EXIT = 0x8000
CHARS_UTF8 = 1
ENDPAUSE = 0x1000
PHONEMES_IPA = 2
PARAMETER_RATE = 1
PARAMETER_VOLUME = 2
EVENT_LIST_TERMINATED = 0
EVENT_WORD = 1
GENDERS = {1: "male", 2: "female"}

VOLUME = 80
"""Volume, of 100. The library stays just below full scale; at 100 the loudest variants clip."""


class LibraryMissing(Exception):
    """The library or its data cannot be loaded."""


class SpeakFailed(Exception): ...


class _EventId(ctypes.Union):
    _fields_ = (
        ("number", ctypes.c_int),
        ("name", ctypes.c_char_p),
        ("string", ctypes.c_char * 8),
    )


class _Event(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", _EventId),
    )


class _Voice(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("languages", ctypes.POINTER(ctypes.c_char)),
        ("identifier", ctypes.c_char_p),
        ("gender", ctypes.c_ubyte),
        ("age", ctypes.c_ubyte),
        ("variant", ctypes.c_ubyte),
        ("reserved", ctypes.c_ubyte),
        ("score", ctypes.c_int),
        ("spare", ctypes.c_void_p),
    )


_Callback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event)
)

OnSound = Callable[[bytes, list[tuple[int, int]]], bool]
"""Takes some samples (s16le) and the words that begin in them, as (first code point, sample); both
count from the start of the text. False ends the synthesis immediately."""


@dataclass(frozen=True, slots=True)
class VoiceEntry:
    name: str
    identifier: str
    """Path of its file, such as ``gmw/en-US``; for a variant the part after ``!v/``."""
    languages: tuple[tuple[int, str], ...]
    """(priority, tag) in lower case; the lower priority is preferred."""
    gender: str | None


class EspeakLibrary:
    """eSpeak NG.

    Raises:
        LibraryMissing: the library or its data cannot be loaded.
    """

    def __init__(self, library: Path, data: Path) -> None:
        if not (data / "phontab").exists():
            raise LibraryMissing(f"{data} holds no eSpeak NG data")
        try:
            self._lib = ctypes.CDLL(str(library))
        except OSError as error:
            raise LibraryMissing(str(error)) from error
        self._data = data
        self._declare()
        self.sample_rate: int = self._lib.espeak_Initialize(
            AUDIO_OUTPUT_SYNCHRONOUS, 0, str(data).encode(), INITIALIZE_DONT_EXIT
        )
        """Samples a second."""
        if self.sample_rate <= 0:
            raise LibraryMissing(f"eSpeak NG cannot read its data in {data}")
        self.version: str = (self._lib.espeak_Info(None) or b"").decode()
        self._on_sound: OnSound | None = None
        self._raised: BaseException | None = None
        self._ended = True
        # The library keeps the bare pointer; this keeps what it points to.
        self._callback = _Callback(self._sound)

    def _declare(self) -> None:
        lib: Any = self._lib
        lib.espeak_Initialize.argtypes = (
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_char_p,
            ctypes.c_int,
        )
        lib.espeak_Info.argtypes = (ctypes.c_void_p,)
        lib.espeak_Info.restype = ctypes.c_char_p
        lib.espeak_SetVoiceByName.argtypes = (ctypes.c_char_p,)
        lib.espeak_SetParameter.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int)
        lib.espeak_ListVoices.argtypes = (ctypes.POINTER(_Voice),)
        lib.espeak_ListVoices.restype = ctypes.POINTER(ctypes.POINTER(_Voice))
        lib.espeak_Synth.argtypes = (
            ctypes.c_char_p,
            ctypes.c_size_t,
            ctypes.c_uint,
            ctypes.c_int,
            ctypes.c_uint,
            ctypes.c_uint,
            ctypes.POINTER(ctypes.c_uint),
            ctypes.c_void_p,
        )
        lib.espeak_TextToPhonemes.argtypes = (
            ctypes.POINTER(ctypes.c_void_p),
            ctypes.c_int,
            ctypes.c_int,
        )
        lib.espeak_TextToPhonemes.restype = ctypes.c_char_p

    def voices(self) -> list[VoiceEntry]:
        return [voice for voice in self._list(None) if self._has_dictionary(voice)]

    def variants(self) -> list[VoiceEntry]:
        name = ctypes.create_string_buffer(b"variant")
        wanted = _Voice(languages=ctypes.cast(name, ctypes.POINTER(ctypes.c_char)))
        return self._list(ctypes.byref(wanted))

    def _list(self, wanted: Any) -> list[VoiceEntry]:
        listed = self._lib.espeak_ListVoices(wanted)
        entries = []
        index = 0
        while listed[index]:
            voice = listed[index].contents
            entries.append(
                VoiceEntry(
                    name=voice.name.decode().strip(),
                    identifier=voice.identifier.decode().removeprefix("!v/"),
                    languages=_languages(voice.languages),
                    gender=GENDERS.get(voice.gender),
                )
            )
            index += 1
        return entries

    def _has_dictionary(self, voice: VoiceEntry) -> bool:
        dictionary = voice.languages[0][1].partition("-")[0]
        file = self._data / "lang" / voice.identifier
        if file.is_file():
            for line in file.read_text("utf-8", errors="replace").splitlines():
                if line.startswith("dictionary"):
                    dictionary = line.split()[1]
        return (self._data / f"{dictionary}_dict").exists()

    def speak(self, text: str, voice: str, rate: int, pause: bool, on_sound: OnSound) -> bool:
        lib = self._lib
        # All of it again each time: what the last text did to the state must not be heard, and the
        # state, with the callback, is the process's: another EspeakLibrary may have set its own.
        lib.espeak_SetSynthCallback(self._callback)
        status = lib.espeak_SetVoiceByName(voice.encode())
        if status != 0:
            raise SpeakFailed(f"status {status} for voice {voice!r}")
        lib.espeak_SetParameter(PARAMETER_RATE, rate, 0)
        lib.espeak_SetParameter(PARAMETER_VOLUME, VOLUME, 0)
        self._on_sound, self._raised, self._ended = on_sound, None, True
        data = text.encode()
        flags = CHARS_UTF8 | (ENDPAUSE if pause else 0)
        status = lib.espeak_Synth(data, len(data) + 1, 0, 1, 0, flags, None, None)
        self._on_sound = None
        if self._raised is not None:
            raise self._raised
        if status != 0:
            raise SpeakFailed(f"status {status}")
        return self._ended

    def phonemes(self, text: str, voice: str) -> list[tuple[int, str]]:
        """Return each clause's phonemes (IPA), and the code point read to."""
        lib = self._lib
        status = lib.espeak_SetVoiceByName(voice.encode())
        if status != 0:
            raise SpeakFailed(f"status {status} for voice {voice!r}")
        data = text.encode()
        buffer = ctypes.create_string_buffer(data)
        begin = ctypes.addressof(buffer)
        at = ctypes.c_void_p(begin)
        clauses = []
        while at.value is not None:
            said = lib.espeak_TextToPhonemes(ctypes.byref(at), CHARS_UTF8, PHONEMES_IPA)
            read = len(data) if at.value is None else at.value - begin
            clauses.append((len(data[:read].decode(errors="ignore")), (said or b"").decode()))
        return clauses

    def _sound(self, samples: Any, count: int, events: Any) -> int:
        if self._on_sound is None or not self._ended:
            return 1
        try:
            words = []
            index = 0
            while events[index].type != EVENT_LIST_TERMINATED:
                if events[index].type == EVENT_WORD:
                    first = max(0, events[index].text_position - 1)
                    words.append((first, max(0, events[index].sample)))
                index += 1
            pcm = ctypes.string_at(samples, count * 2) if samples and count > 0 else b""
            if (pcm or words) and not self._on_sound(pcm, words):
                self._ended = False
        except BaseException as error:  # must not unwind into C; speak() raises it
            self._raised = error
            self._ended = False
        return 0 if self._ended else 1


def _languages(listed: Any) -> tuple[tuple[int, str], ...]:
    found = []
    index = 0
    while listed[index] != b"\0":
        priority = listed[index][0]
        tag = bytearray()
        index += 1
        while listed[index] != b"\0":
            tag += listed[index]
            index += 1
        index += 1
        found.append((priority, tag.decode().lower()))
    return tuple(found)
