"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

ENDING: Final = ".part"


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write into, which takes its place when this ends without an error.

    Until then a reader has the old one, and so after an error. Only its owner may read it. A link
    is followed. What is no plain file (``/dev/stdout``, a pipe) is written into as it is.

    Raises OSError that names ``path``.
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
