"""Accounts and trunks of a settings file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Literal

from qwen3tts_phone.errors import CallError
from qwen3tts_phone.settings.secrets import refuse_secret, take_secret
from qwen3tts_phone.sip.core.account import Account
from qwen3tts_phone.sip.message.fields import parse_uri
from qwen3tts_settings.building import build, unknown_setting
from qwen3tts_settings.entries import BadConfiguration, Entry

Kind = Literal["accounts", "trunks"]
KINDS: tuple[Kind, ...] = ("accounts", "trunks")

PASSWORD_SOURCES = ("password_env", "password_file")
"""Settings in place of a password."""
_OWN = tuple(each.name for each in fields(Account) if each.init)
KEYS: Mapping[Kind, tuple[str, ...]] = {
    "accounts": (*(name for name in _OWN if name != "password"), *PASSWORD_SOURCES),
    # A trunk is a server that we do not register with: it knows our address.
    "trunks": (
        "server",
        *(name for name in _OWN if name not in ("password", "registrar", "register", "expires")),
        *PASSWORD_SOURCES,
    ),
}
"""The names that may stand in one of them."""
PHONE_SETTINGS = ("host", "port", "tls", "listeners", "advertised_host")
"""Settings of the whole phone that may be looked for in an account."""
DEFAULT_PORTS = {"udp": 5060, "tcp": 5060, "tls": 5061}


def read_accounts(kind: Kind, entry: Entry, env: Mapping[str, str]) -> list[Account]:
    if entry.value is None:
        return []
    if not isinstance(entry.value, list):
        raise BadConfiguration(
            f"{kind} must be a list ({entry.where}).",
            remedy="Begin each of them with a dash: `- name: NAME`.",
        )
    return [_account(kind, f"{kind}[{i}]", each, env) for i, each in enumerate(entry.value)]


def _account(kind: Kind, path: str, entry: Entry, env: Mapping[str, str]) -> Account:
    if not isinstance(entry.value, dict):
        raise BadConfiguration(
            f"{path} must be a section ({entry.where}).", remedy="Write `name: NAME` and the rest."
        )
    given = dict(entry.value)
    refuse_secret(path, given, "password")
    for name, inner in given.items():
        if name in PHONE_SETTINGS:
            raise BadConfiguration(
                f"The setting {path}.{name} is unknown ({inner.where}).",
                remedy=f"All accounts share listen.{name}; listen.listeners has several.",
            )
        if name not in KEYS[kind]:
            raise unknown_setting(f"{path}.{name}", inner, list(KEYS[kind]))
    take_secret(path, given, "password", env)
    if kind == "trunks":
        if "server" not in given:
            raise BadConfiguration(
                f"{path}.server is missing ({entry.where}).",
                remedy="Name the trunk's server: sip:HOST, or sip:HOST:PORT;transport=tcp.",
            )
        given["registrar"] = given.pop("server")
        given["register"] = Entry(False, entry.where)
        given.setdefault("user", Entry("", entry.where))
    try:
        return build(Account, Entry(given, entry.where), path)
    except CallError as error:  # not an address
        raise BadConfiguration(
            f"{path}: {error.message} ({_place_of_error(error.message, given) or entry.where})",
            remedy=error.remedy or "Change it there.",
        ) from error


def _place_of_error(message: str, given: Mapping[str, Entry]) -> str:
    for name, entry in given.items():
        if re.match(rf"{name}\b", message):
            return entry.where
    scalars = [
        each
        for entry in given.values()
        for each in (entry.value if isinstance(entry.value, list) else (entry,))
        if isinstance(each.value, str) and each.value and each.value in message
    ]
    return max(scalars, key=lambda each: len(each.value)).where if scalars else ""


def check_distinct(accounts: list[Account], places: list[str]) -> None:
    """Refuse accounts of the same name, or the same user at one server.

    ``places``: file and line of each. Raises BadConfiguration.
    """
    names: dict[str, str] = {}
    users: dict[tuple[str, str, int], tuple[str, str]] = {}
    for account, place in zip(accounts, places, strict=True):
        if account.name in names:
            raise BadConfiguration(
                f"Two accounts have the name {account.name!r}: {names[account.name]} and {place}.",
                remedy="Give each a name of its own.",
            )
        names[account.name] = place
        host, port = server_of(account)
        key = (account.user, host, port)
        if key in users:
            other, where = users[key]
            raise BadConfiguration(
                f"The accounts {other!r} ({where}) and {account.name!r} ({place}) are the same"
                f" user {account.user!r} at {host}:{port}.",
                remedy="Take one out: a registrar keeps one of them and forgets the other.",
            )
        users[key] = account.name, place


def server_of(account: Account) -> tuple[str, int]:
    uri = parse_uri(account.registrar)
    port = DEFAULT_PORTS[transport_of(account) or "udp"]
    return uri.host.strip("[]").lower(), uri.port or port


def transport_of(account: Account) -> str:
    """Return an account's udp, tcp or tls; empty where DNS decides."""
    uri = parse_uri(account.proxy or account.registrar)
    if uri.scheme == "sips":
        return "tls"
    named = str(uri.parameters.get("transport") or account.transport).lower()
    return named if named in DEFAULT_PORTS else ""
