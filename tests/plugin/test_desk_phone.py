"""The phone behind the desk: where it listens, and that it is tried again."""

from __future__ import annotations

import asyncio
import builtins
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mr_qwen3tts.calls import phone as desk_phone
from mr_qwen3tts.calls.options import CallSettings
from mr_qwen3tts.calls.phone import (
    NotReady,
    PhoneSupervisor,
    listen_at,
    phone_extra_missing,
    phone_settings,
)
from mr_qwen3tts.settings import Settings
from qwen3tts_phone.errors import PortBusy
from qwen3tts_phone.phone import Account
from qwen3tts_speech.link import SpeechLink
from tests.e2e.test_outage import wav
from tests.fakes import FakeClock
from tests.plugin.desk_parties import NO_SERVER, Wishes, person

UNSET = Wishes(sip_listen=None, sip_agent=None)


def test_the_plugins_settings_are_what_the_desk_asks_for() -> None:
    wishes: CallSettings = Settings()
    assert listen_at(wishes) == ("", 0)


@pytest.mark.parametrize(
    ("wishes", "where"),
    [
        (UNSET, ("", 0)),
        (replace(UNSET, sip_agent="clerk"), ("127.0.0.1", 5060)),
        (replace(UNSET, sip_agent="clerk", sip_server="pbx.example.org"), ("", 0)),
        (replace(UNSET, sip_listen="192.0.2.7"), ("192.0.2.7", 5060)),
        (replace(UNSET, sip_listen="192.0.2.7:5070"), ("192.0.2.7", 5070)),
        (replace(UNSET, sip_listen=":5070"), ("0.0.0.0", 5070)),
    ],
)
def test_where_the_phone_listens(wishes: Wishes, where: tuple[str, int]) -> None:
    assert listen_at(wishes) == where


def test_an_account_is_registered_with_the_server() -> None:
    wishes = replace(
        UNSET,
        sip_server="127.0.0.1:5070",
        sip_user="200",
        sip_password="secret",
        sip_advertised="203.0.113.7",
        sip_rtp_ports=(10000, 10100),
        sip_max_calls=7,
    )
    settings = phone_settings(wishes)
    assert settings.account == Account("sip:127.0.0.1:5070", "200", "secret")
    assert (settings.host, settings.user) == ("127.0.0.1", "200"), "the address that leads there"
    assert settings.advertised_host == "203.0.113.7"
    assert settings.rtp_ports == (10000, 10100)
    assert settings.max_calls == 7
    assert "secret" not in repr(settings)


def test_a_file_for_callers_while_no_speech_server_is_there_is_the_phones(tmp_path: Path) -> None:
    file = wav(tmp_path / "later.wav")
    settings = phone_settings(replace(UNSET, sip_unavailable_file=str(file)))
    assert settings.unavailable_file == file
    with pytest.raises(ValueError, match=r"unavailable_file=.*gone\.wav cannot be read"):
        phone_settings(replace(UNSET, sip_unavailable_file=str(tmp_path / "gone.wav")))


def test_a_server_without_an_account_is_a_gateway() -> None:
    assert phone_settings(replace(UNSET, sip_server="127.0.0.1")).account is None


def test_a_host_that_cannot_be_found_leaves_it_to_dialling_to_say_so() -> None:
    settings = phone_settings(replace(UNSET, sip_server="no.such.host.invalid", sip_user="200"))
    assert settings.host == "127.0.0.1"


def test_without_the_phone_extra_the_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert phone_extra_missing() is None
    for name in [name for name in sys.modules if name.startswith("qwen3tts_phone")]:
        monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name.partition(".")[0] == "sipmessage":
            raise ModuleNotFoundError("No module named 'sipmessage'", name="sipmessage")
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    assert phone_extra_missing() == "sipmessage"


@asynccontextmanager
async def keeper(
    wishes: list[Wishes], clock: FakeClock
) -> AsyncIterator[tuple[PhoneSupervisor, list[BaseException | str]]]:
    problems: list[BaseException | str] = []
    link = SpeechLink(NO_SERVER)
    there = PhoneSupervisor(
        lambda: wishes[0],
        lambda: link,
        clock,
        lambda call: None,
        lambda what, error: problems.append(error),
    )
    try:
        yield there, problems
    finally:
        await there.close()


@pytest.mark.network
async def test_it_is_there_as_soon_as_it_can_be() -> None:
    clock = FakeClock()
    async with person() as other:
        wishes = [Wishes(sip_listen=f"127.0.0.1:{other.port}")]
        async with keeper(wishes, clock) as (there, problems):
            with pytest.raises(NotReady, match=str(other.port)):
                await there.phone(10)
            assert [type(each) for each in problems] == [PortBusy]
            wishes[0] = Wishes()
            await clock.advance(desk_phone.FIRST_RETRY_S)
            async with asyncio.timeout(10), there._changed:
                await there._changed.wait_for(lambda: there.uri)
            assert (await there.phone(10)).uri == there.uri
            assert len(problems) == 1


@pytest.mark.network
async def test_what_keeps_it_away_is_told_once_and_tried_ever_less_often() -> None:
    clock, tried = FakeClock(), asyncio.Event()
    link, problems = SpeechLink(NO_SERVER), []

    def wishes() -> Wishes:
        tried.set()
        return Wishes(sip_listen="127.0.0.1:x")

    there = PhoneSupervisor(
        wishes, lambda: link, clock, lambda call: None, lambda what, error: problems.append(error)
    )
    with pytest.raises(NotReady):
        await there.phone(10)
    for delay in (1.0, 2.0, 4.0):
        tried.clear()
        await clock.advance(delay - 0.1)
        assert not tried.is_set()
        await clock.advance(0.1)
        assert tried.is_set()
        while not clock._sleepers:  # noqa: ASYNC110 - a thread does the work
            await asyncio.sleep(0)
    assert len(problems) == 1
    await there.close()


@pytest.mark.network
async def test_an_endpoint_that_ends_is_brought_up_again() -> None:
    clock = FakeClock()
    async with keeper([Wishes()], clock) as (there, problems):
        phone = await there.phone(10)
        await phone._sip.close()
        async with asyncio.timeout(10), there._changed:
            await there._changed.wait_for(lambda: there.trouble)
        assert [str(each) for each in problems] == ["its endpoint was closed"]
        await clock.advance(desk_phone.FIRST_RETRY_S)
        async with asyncio.timeout(10), there._changed:
            await there._changed.wait_for(lambda: there.uri)
        assert await there.phone(10) is not phone


@pytest.mark.network
async def test_nobody_waits_for_it_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    never = asyncio.Event()

    async def stuck(*arguments: Any) -> Any:
        await never.wait()

    monkeypatch.setattr(asyncio, "to_thread", stuck)
    async with keeper([Wishes()], FakeClock()) as (there, _):
        with pytest.raises(NotReady, match="still being brought up"):
            await there.phone(0)


@pytest.mark.network
async def test_what_breaks_in_it_is_told_and_tried_again() -> None:
    clock = FakeClock()
    async with keeper([replace(Wishes(), sip_listen="127.0.0.1:x")], clock) as (there, problems):
        with pytest.raises(NotReady):
            await there.phone(10)
        assert [type(each) for each in problems] == [ValueError]
    wrong: Any = 5
    async with keeper([replace(Wishes(), sip_listen=wrong)], clock) as (there, problems):
        with pytest.raises(NotReady):
            await there.phone(10)
        assert [type(each) for each in problems] == [AttributeError]


async def test_closing_one_that_was_never_started_does_nothing() -> None:
    async with keeper([Wishes()], FakeClock()) as (there, problems):
        assert there.uri == ""
    assert problems == []
