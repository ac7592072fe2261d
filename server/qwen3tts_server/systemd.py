"""Word to the service manager, where one asks for it (sd_notify(3)); nothing elsewhere."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping


def notify(state: str, env: Mapping[str, str] | None = None) -> bool:
    """Send ``READY=1``, ``STOPPING=1`` or the like; False where nobody listens."""
    address = (os.environ if env is None else env).get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):  # Linux: a name that is in no file system
        address = "\0" + address[1:]
    with contextlib.suppress(OSError):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
            told.settimeout(1)
            told.sendto(state.encode(), address)
        return True
    return False
