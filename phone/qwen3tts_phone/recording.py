"""One recording of a call, as whoever asked for it has it in the hand."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from qwen3tts_phone.encoded_file import ENCODED, EncodingFailed, need_pyav, write_encoded
from qwen3tts_phone.errors import CallError

SUFFIXES = (".wav", *ENCODED)
"""Endings of a recording's file, in lower case."""


class Recording(os.PathLike[str]):
    """A stereo recording of both sides, the caller left and the agent right; of `Call.record`.

    It begins at once, or when the call is answered and the far end has heard what the settings'
    ``consent`` asks for; ``await recording`` waits for that. It ends with the call, or before:

    >>> async with call.record("call.wav"):
    ...     await call.say("This part is kept.")

    The file is only for its owner to read (0600). A WAV can be played while it grows; a file
    of another form is made of one when the recording has ended.
    """

    def __init__(
        self, path: Path, stop: Callable[[Recording], None], *, bitrate: int = 32_000
    ) -> None:
        self.path = path
        """The file that is wanted."""
        self.began_at: float | None = None
        """When its first sample was, seconds of the monotonic clock; None = it has not begun."""
        self.error: Exception | None = None
        """Why there is no recording, or not all of it; None while all is well."""
        self._stop = stop
        self._bitrate = bitrate
        self._begun = asyncio.Event()
        self._finishing: asyncio.Task[tuple[Path, ...]] | None = None

    @property
    def wav(self) -> Path:
        """The WAV that is written while the call lasts."""
        return written_as(self.path)

    @property
    def encodes(self) -> bool:
        """Whether a file of another form is made in the end."""
        return self.wav != self.path

    async def stop(self) -> Path:
        """End it now; its file, once it is complete.

        Harmless when it has ended, as it does with the call. Raises the `OSError` that kept it from
        being written, or CallError where it never began or its file could not be encoded; the WAV
        beside it is kept then.
        """
        self._stop(self)
        files = await self.finished()
        if self.error is not None:
            raise self.error
        return files[0]

    def __await__(self) -> Generator[Any, None, Recording]:
        """Wait until it has begun; raises why it could not."""
        return self._wait().__await__()

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"Recording({self.path.name!r})"

    async def __aenter__(self) -> Recording:
        return await self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # --- for the call

    def begun(self, now: float) -> None:
        """Its first sample is now."""
        self.began_at = now
        self._begun.set()

    def failed(self, error: Exception) -> None:
        """There will be none, or no more of it."""
        self.error = self.error or error
        self._begun.set()

    async def finished(self) -> tuple[Path, ...]:
        """Nothing more is written: encode it where that is wanted; the files there are."""
        if self._finishing is None:
            self._finishing = asyncio.create_task(self._finish(), name=f"finish {self!r}")
        return await asyncio.shield(self._finishing)

    # --- inside

    async def _wait(self) -> Recording:
        await self._begun.wait()
        if self.error is not None:
            raise self.error
        return self

    async def _finish(self) -> tuple[Path, ...]:
        if self.began_at is None:
            return ()
        if not self.encodes:
            return (self.path,)
        try:
            await asyncio.to_thread(write_encoded, self.wav, self.path, bitrate=self._bitrate)
        except EncodingFailed as error:
            self.error = CallError(
                f"The recording was not encoded: {error}.",
                remedy=f"Its sound is in {self.wav.name}.",
            )
            return (self.wav,)
        self.wav.unlink(missing_ok=True)
        return (self.path,)


def written_as(path: Path) -> Path:
    """Return the WAV that is written while a call lasts, for a recording that is to be ``path``."""
    return path.with_name(f"{path.name}.wav") if path.suffix.lower() in ENCODED else path


def checked(path: Path) -> Path:
    """The path, if a recording can be written there.

    Raises ValueError for another kind of file, OSError where there is no such folder, CallError
    where the library that encodes is not installed.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(
            f"path={path.name!r}: a recording's file ends in {', '.join(SUFFIXES)}, which says its "
            "format"
        )
    if not path.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {path.parent} to record into.")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder.")
    if path.suffix.lower() != ".wav":
        try:
            need_pyav()
        except EncodingFailed as error:
            raise CallError(str(error), remedy="Record into a .wav file, or install it.") from None
    return path
