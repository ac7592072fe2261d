"""Recordings that pages asked for: where they are, under names that cannot be guessed."""

from __future__ import annotations

import secrets
import shutil
import tempfile
import wave
from collections import OrderedDict
from datetime import UTC, datetime
from pathlib import Path

from qwen3tts_wire.errors import SpeechError

MOST = 200
"""More than that are not offered; of a private folder the oldest are deleted."""


class NoSuchRecording(SpeechError):
    """There is no recording of that name, or not any more."""

    code = "no_such_recording"

    def __init__(self) -> None:
        super().__init__(
            "There is no such recording.",
            remedy="Recordings are kept until the softphone ends; record a call again.",
        )


class Recorded:
    """One softphone's recordings.

    Args:
        folder: where they stay; None = in a private folder that `close` deletes.

    Raises OSError where there is no such folder.
    """

    def __init__(self, folder: Path | None) -> None:
        self._private = folder is None
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix="mr-qwen3tts-softphone-"))  # 0700
        elif not folder.is_dir():
            raise FileNotFoundError(f"There is no folder {folder} to record into.")
        self.folder = folder
        self._known: OrderedDict[str, Path] = OrderedDict()

    def new(self) -> tuple[str, Path]:
        """A name and a file for one more."""
        name = secrets.token_urlsafe(12)
        stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        return name, self.folder / f"{stamp}-web-{name}.wav"

    def done(self, name: str, path: Path) -> float:
        """It can be fetched from now on; its length in seconds. Raises OSError."""
        try:
            with wave.open(str(path)) as file:
                seconds = float(file.getnframes() / file.getframerate())
        except (wave.Error, EOFError, ZeroDivisionError) as error:
            raise OSError(f"{path.name} is no complete recording") from error
        self._known[name] = path
        while len(self._known) > MOST:
            _, oldest = self._known.popitem(last=False)
            if self._private:
                oldest.unlink(missing_ok=True)
        return seconds

    def path(self, name: str) -> Path:
        """The file of that name; raises NoSuchRecording."""
        path = self._known.get(name)
        if path is None or not path.is_file():
            raise NoSuchRecording
        return path

    def close(self) -> None:
        """Forget all; a private folder is deleted."""
        self._known.clear()
        if self._private:
            shutil.rmtree(self.folder, ignore_errors=True)
