"""Keys of recognition services: each is sent only to the hosts that it belongs to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from qwen3tts_phone.recognise.socket_settings import API_KEY_ENV

SERVICES = {"api.openai.com": "OPENAI_API_KEY", "api.deepgram.com": "DEEPGRAM_API_KEY"}
"""The environment's variable for the key of each service, which takes nothing without one."""


def key_variable(url: str) -> str:
    """The environment's variable for the key of the server at this address."""
    return SERVICES.get((urlsplit(url).hostname or "").lower(), API_KEY_ENV)


def key_for(url: str, given: str | None, environ: Mapping[str, str] | None = None) -> str:
    """The key that goes to this address; empty = none.

    ``given``: what the settings say; None = the environment's, see `key_variable`.

    Raises:
        ValueError: no header can hold it, or the service takes nothing without one.
    """
    variable = key_variable(url)
    key = given
    if key is None:
        key = (os.environ if environ is None else environ).get(variable, "").strip()
        if not all("!" <= char <= "~" for char in key):
            raise ValueError(f"{variable} holds something else than visible ASCII characters")
    if not key and variable != API_KEY_ENV:
        raise ValueError(f"there is no key for {urlsplit(url).hostname}")
    return key
