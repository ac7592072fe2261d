"""What ``doctor`` looks at of a speech server: its file of settings, its certificate, its keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from qwen3tts_cli.checks import Check, Level
from qwen3tts_cli.exits import needs
from qwen3tts_settings.key_files import readable_by_others
from qwen3tts_wire.errors import SpeechError

if TYPE_CHECKING:
    from qwen3tts_server.settings import AccessSettings


def server_checks(config: Path) -> Iterator[Check]:
    """Look at a speech server's settings and at the files that ``server.access`` names."""
    with needs("server"):
        from qwen3tts_server.configuration import load_configuration
    name = "server settings"
    try:
        settings = load_configuration(config)
    except SpeechError as error:
        yield Check(name, Level.FAIL, error.message, error.remedy)
        return
    except OSError as error:
        yield Check(name, Level.FAIL, f"{config}: {error.strerror or error}", "Check the path.")
        return
    yield Check(name, Level.OK, f"{config}: engine {settings.engine.name}, {settings.hash()}")
    access = settings.server.access
    if access.tls_cert is not None:
        yield _certificate(access)
    if access.api_key_file is not None:
        yield _keys(access.api_key_file)


def _certificate(access: AccessSettings) -> Check:
    from qwen3tts_server.tls import ServerTls, key_file

    name = "server certificate"
    try:
        ServerTls(access)
    except SpeechError as error:
        return Check(name, Level.FAIL, error.message, error.remedy)
    key = key_file(access)
    assert key is not None
    if who := readable_by_others(key):
        return Check(name, Level.WARN, f"{key} can be read by {who}", f"chmod 600 {key}")
    return Check(name, Level.OK, str(access.tls_cert))


def _keys(file: Path) -> Check:
    from qwen3tts_server.keys import ApiKeys

    name = "API keys"
    try:
        ApiKeys(file=file)
    except SpeechError as error:
        return Check(name, Level.FAIL, error.message, error.remedy)
    if who := readable_by_others(file):
        return Check(name, Level.WARN, f"{file} can be read by {who}", f"chmod 600 {file}")
    return Check(name, Level.OK, str(file))
