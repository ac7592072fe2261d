"""Speech server as a child process: ``python -P -m qwen3tts_server.child``.

The first line of standard input is a JSON object with the clients' ``key`` and the ``port`` of
127.0.0.1 (0 = any). One JSON line on standard output says ``ready`` (``url``, ``engine``) or
``error`` (``code``, ``message``, ``remedy``). It serves until standard input ends, as it does
with the parent. The engine is the environment's (``QWEN3TTS__ENGINE__…``), else the default.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from qwen3tts_wire.errors import BadRequest, SpeechError

EXTRA = "server,voice"


def main() -> int:
    logging.basicConfig(level="WARNING", format="%(levelname)s %(name)s: %(message)s")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; see stdin
    answers = os.dup(1)
    os.dup2(2, 1)  # what a library prints is no answer

    def answer(kind: str, details: dict[str, Any]) -> None:
        # Without a reader the parent has gone; standard input says so, too.
        with contextlib.suppress(BrokenPipeError):
            os.write(answers, json.dumps({kind: details}).encode() + b"\n")

    try:
        asked = json.loads(sys.stdin.buffer.readline() or b"{}")
        asyncio.run(_serve(str(asked.get("key", "")), int(asked.get("port", 0)), answer))
    except SpeechError as error:
        answer("error", {"code": _code(error), "message": error.message, "remedy": error.remedy})
        return 1
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("qwen3tts_"):
            raise
        answer(
            "error",
            {
                "code": "engine_unavailable",
                "message": f"The voice needs the Python package {error.name!r}, which is not"
                " installed.",
                "remedy": f"Install it with: pip install 'mr_qwen3tts[{EXTRA}]'",
            },
        )
        return 1
    return 0


def _code(error: SpeechError) -> str:
    return BadRequest.code if isinstance(error, BadRequest) else error.code


async def _serve(key: str, port: int, answer: Callable[[str, dict[str, Any]], None]) -> None:
    from qwen3tts_server.configuration import build_engine, default_engine, load_configuration
    from qwen3tts_server.run import running_server, settle_heap
    from qwen3tts_server.settings import AccessSettings
    from qwen3tts_wire.process import raise_descriptor_limit

    configuration = load_configuration()
    engine = build_engine(configuration)
    settings = replace(configuration.server, access=AccessSettings(api_keys=(key,) if key else ()))
    raise_descriptor_limit(settings.access.max_sockets)
    async with running_server(engine, "127.0.0.1", port, settings) as running:
        settle_heap()
        sentence = f"The voice is {engine.model}."
        if configuration.engine.name == "auto":
            sentence = default_engine().sentence
        details = " ".join([sentence, *getattr(engine, "notes", ())])
        answer("ready", {"url": running.url, "engine": details})
        await _end_of_input()


async def _end_of_input() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    loop.add_signal_handler(signal.SIGTERM, reader.feed_eof)
    while await reader.read(4096):
        pass


if __name__ == "__main__":
    sys.exit(main())
