"""Early checks of output files, and atomic writes."""

from __future__ import annotations

import os
import shlex
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import typer

from qwen3tts_cli.output.exits import require_extra

if TYPE_CHECKING:
    pass

SOUND_ENDINGS = (".wav", ".flac", ".mp3", ".ogg", ".opus")
"""Suffixes; all but the first need PyAV."""


def check_writable(option: str, path: Path | None) -> None:
    """Refuse an unwritable file; raises ``typer.BadParameter`` with a remedy."""
    if path is None:
        return
    folder = path.parent
    if path.is_dir():
        raise typer.BadParameter(f"{option}: {path} is a folder. Name a file in it.")
    if path.exists():
        if not os.access(path, os.W_OK):
            raise typer.BadParameter(
                f"{option}: there is no permission to write {path}. Choose another file, or change"
                f" its rights: chmod u+w {shlex.quote(str(path))}"
            )
    else:
        check_folder(option, folder)


def check_folder(option: str, folder: Path) -> None:
    if not folder.exists():
        raise typer.BadParameter(
            f"{option}: there is no folder {folder}. Make it: mkdir -p {shlex.quote(str(folder))}"
        )
    if not folder.is_dir():
        raise typer.BadParameter(f"{option}: {folder} is a file, not a folder.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise typer.BadParameter(
            f"{option}: there is no permission to write into the folder {folder}. Choose another"
            " folder, such as your home folder."
        )


def check_sound_file(option: str, path: Path | None, extra: str) -> None:
    """Refuse an unwritable audio file; raises ``typer.BadParameter``, MissingExtra."""
    check_writable(option, path)
    if path is None or (path.exists() and not path.is_file()):
        return
    ending = path.suffix.lower()
    if ending not in SOUND_ENDINGS:
        raise typer.BadParameter(
            f"{option}: {_ending_of(path)}; it says the form: {_listed(SOUND_ENDINGS)}."
        )
    if ending != SOUND_ENDINGS[0]:
        with require_extra(extra):
            import av  # noqa: F401


def _ending_of(path: Path) -> str:
    if not path.suffix:
        return f"{path} has no ending"
    return f"the ending {path.suffix} is not one of ours"


def _listed(endings: Sequence[str]) -> str:
    return f"{', '.join(endings[:-1])} or {endings[-1]}"


ENDING: Final = ".part"


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Yield a file that replaces ``path`` atomically on success, mode 0600.

    Links are followed; devices and pipes are written directly. Raises OSError naming ``path``.
    """
    part: str | None = None
    try:
        target = Path(os.path.realpath(path))
        if _is_special(target):
            with open(path, "wb") as file:
                yield file
        else:
            descriptor, part = tempfile.mkstemp(dir=target.parent, prefix=".", suffix=ENDING)
            with os.fdopen(descriptor, "wb") as file:
                yield file
            os.replace(part, target)
            part = None
    except OSError as error:
        if error.filename is not None and not str(error.filename).endswith(ENDING):
            raise  # of another file that was read meanwhile
        raise OSError(error.errno, error.strerror, os.fspath(path)) from None
    finally:
        if part is not None:
            with suppress(OSError):
                os.unlink(part)


def _is_special(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode)
