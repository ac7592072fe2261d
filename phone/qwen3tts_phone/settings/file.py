"""Reader of the phone's settings file.

Unknown names are refused with line and similar names; whatever needs no network is checked before
any bind.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from qwen3tts_phone.detection.settings import PRESETS
from qwen3tts_phone.settings.accounts import KINDS, check_distinct, read_accounts
from qwen3tts_phone.settings.checks import check_combinations, settings_warnings
from qwen3tts_phone.settings.phone import PhoneSettings
from qwen3tts_phone.settings.secrets import refuse_secret, take_secret
from qwen3tts_phone.settings.sections import PhoneConfig
from qwen3tts_phone.sip.core.account import Account
from qwen3tts_settings.building import build, unknown_setting
from qwen3tts_settings.entries import BadConfiguration, Entry, from_file

EXAMPLE = "configs/phone.yaml"
"""A file that may be copied."""
SECTIONS = (
    *("listen", "accounts", "trunks", "require_registration"),
    *("media", "speech", "hearing", "safety", "records", "outbound"),
)
"""Sections of a file."""
PORT = 5060
"""Default SIP port of a file."""
IN_THE_FILE = {
    "port_range": ("media", "rtp_ports"),
    "media_silent_s": ("media", "silent_s"),
    "transfers": ("safety", "transfers"),
    "unavailable_file": ("speech", "unavailable_file"),
}
"""Places in the file of phone settings under another name."""


def load_phone_config(
    path: str | os.PathLike[str], env: Mapping[str, str] | None = None
) -> PhoneSettings:
    """Read a settings file as `PhoneSettings`; ``env`` holds passwords.

    Raises:
        BadConfiguration: unknown, missing or invalid, with the line.
        BadCertificate: a certificate cannot be used.
    """
    return read_phone_config(path, env).settings()


def read_phone_config(
    path: str | os.PathLike[str], env: Mapping[str, str] | None = None
) -> PhoneConfig:
    return config_from(from_file(Path(path), EXAMPLE), env)


def config_from(entry: Entry, env: Mapping[str, str] | None = None) -> PhoneConfig:
    env = os.environ if env is None else env
    rest = dict(entry.value)
    for name, inner in rest.items():
        if name not in SECTIONS:
            raise unknown_setting(name, inner, list(SECTIONS))
    accounts: list[Account] = []
    places: list[str] = []
    for kind in KINDS:
        if (listed := rest.pop(kind, None)) is not None:
            found = read_accounts(kind, listed, env)
            accounts += found
            places += [listed.place(i) for i in range(len(found))]
    check_distinct(accounts, places)
    rest["listen"] = _listen(rest.get("listen", Entry(None, entry.where)), env)
    if "hearing" in rest:
        rest["hearing"] = _hearing(rest["hearing"])
    built = build(PhoneConfig, Entry(rest, entry.where))
    config = replace(built, accounts=tuple(accounts))
    check_combinations(config, entry, places)
    _check_settings(config, entry)
    return replace(config, remarks=tuple(settings_warnings(config, entry)))


def _listen(listen: Entry, env: Mapping[str, str]) -> Entry:
    if listen.value is None:
        listen = Entry({}, listen.where)
    if not isinstance(listen.value, dict):
        return listen
    held = {"port": Entry(PORT, listen.where), **listen.value}
    if "gate" in held:
        raise BadConfiguration(
            f"The setting listen.gate is unknown ({held['gate'].where}).",
            remedy="Did you mean safety.gate?",
        )
    tls = held.get("tls")
    if tls is not None and isinstance(tls.value, dict):
        given = dict(tls.value)
        refuse_secret("listen.tls", given, "key_password")
        take_secret("listen.tls", given, "key_password", env)
        held["tls"] = Entry(given, tls.where)
    return Entry(held, listen.where)


def _hearing(hearing: Entry) -> Entry:
    """Return the section with the figures of its preset, which its own override."""
    if not isinstance(hearing.value, dict):
        return hearing
    held = dict(hearing.value)
    preset = held.pop("preset", Entry("talk", hearing.where))
    if not isinstance(preset.value, str) or preset.value not in PRESETS:
        raise BadConfiguration(
            f"hearing.preset must be one of {', '.join(PRESETS)} ({preset.where}).",
            remedy="Name one of them, or leave it out.",
        )
    figures = {name: Entry(value, preset.where) for name, value in PRESETS[preset.value].items()}
    return Entry(figures | held, hearing.where)


def _check_settings(config: PhoneConfig, entry: Entry) -> None:
    try:
        config.settings()
    except ValueError as error:
        name = re.match(r"\w*", str(error))
        assert name is not None
        section, inner = IN_THE_FILE.get(name[0], ("media", name[0]))
        raise BadConfiguration(
            f"{section}: {error} ({entry.place(section, inner)}).", remedy="Change it there."
        ) from error
