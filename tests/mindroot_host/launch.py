"""Start MindRoot on a free port of 127.0.0.1; run by the host's own interpreter.

    launch.py PORT_FILE -u admin -pw PASSWORD

MindRoot listens on all addresses and has no option for that, so the call with which it starts its
web server is replaced. Nothing else of it is touched. The port is written to ``PORT_FILE``.
"""

from __future__ import annotations

import importlib
import os
import socket
import sys
from pathlib import Path
from typing import Any

import uvicorn


def main() -> None:
    port_file = Path(sys.argv.pop(1))
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    port = listening.getsockname()[1]

    def run(app: Any, *, host: str, port: int, **options: Any) -> None:
        uvicorn.Server(uvicorn.Config(app, log_level="warning", **options)).run([listening])

    uvicorn.run = run  # type: ignore[assignment]
    sys.argv[1:] = ["-p", str(port), *sys.argv[1:]]
    # Whole at once: who waits for the file must not read half a number.
    part = port_file.with_suffix(".part")
    part.write_text(f"{port} {os.getpid()}\n")
    part.replace(port_file)
    server: Any = importlib.import_module("mindroot.server")
    server.main()


if __name__ == "__main__":
    main()
