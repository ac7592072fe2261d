"""Who may open a stream of which kind, and what the REST interfaces are asked."""

from __future__ import annotations

import base64
import hmac
import json
import re
from collections.abc import Callable

import httpx
import pytest

from qwen3tts_phone.streams.carriers.adapter import Handshake, Refused, StreamKind
from qwen3tts_phone.streams.carriers.authentication import (
    MAX_WEBHOOKS,
    PASS_S,
    CarrierAdmission,
    HeaderToken,
    StreamPasses,
    passes_signed_with,
)
from qwen3tts_phone.streams.carriers.exotel import exotel
from qwen3tts_phone.streams.carriers.http import CarrierRefused
from qwen3tts_phone.streams.carriers.jambonz import jambonz
from qwen3tts_phone.streams.carriers.plivo import PlivoRest, plivo
from qwen3tts_phone.streams.carriers.telnyx import TelnyxRest, telnyx
from qwen3tts_phone.streams.carriers.twilio import TwilioRest, twilio
from qwen3tts_phone.streams.carriers.vonage import vonage
from qwen3tts_wire.errors import BadRequest

NOW = 1_800_000_000.0
HOST = {"host": "voice.example.com"}
VARIABLES = [
    "MR_QWEN3TTS_PUBLIC_URL",
    "TWILIO_AUTH_TOKEN",
    "TWILIO_ACCOUNT_SID",
    "TELNYX_STREAM_TOKEN",
    "TELNYX_PUBLIC_KEY",
    "TELNYX_API_KEY",
    "PLIVO_AUTH_TOKEN",
    "PLIVO_AUTH_ID",
    "EXOTEL_STREAM_USER",
    "EXOTEL_STREAM_PASSWORD",
    "VONAGE_SIGNATURE_SECRET",
    "JAMBONZ_USER",
    "JAMBONZ_PASSWORD",
    "JAMBONZ_WEBHOOK_SECRET",
]


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def lets_in(kind: StreamKind, handshake: Handshake) -> bool:
    if kind.check is None:
        return True
    try:
        kind.check(handshake)
    except Refused as refused:
        return refused.status != 403
    return True


def asked(kind: StreamKind, query: str = "", headers: dict[str, str] | None = None) -> str:
    assert kind.answer is not None
    path = f"/{kind.name}/answer"
    return kind.answer(Handshake(path=path, query=query, headers={**HOST, **(headers or {})}))[1]


def test_without_a_key_nothing_is_checked_and_the_kind_says_so() -> None:
    for make in (twilio, telnyx, plivo, exotel, vonage, jambonz):
        assert make().check is None


def test_keys_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        if name != "TELNYX_PUBLIC_KEY":
            if name == "MR_QWEN3TTS_PUBLIC_URL":
                monkeypatch.setenv(name, "https://p.example/calls")
                continue
            is_name = name.endswith(("_USER", "_SID", "_ID"))
            monkeypatch.setenv(name, "a-name" if is_name else "key-in-the-environment")
    kinds = [twilio(), telnyx(), plivo(), exotel(), vonage(), jambonz()]
    assert all(kind.check is not None for kind in kinds)
    assert [kind.name for kind in kinds if kind.hang_up] == ["twilio", "telnyx", "plivo"]
    assert not any("key-in-the-environment" in repr(kind) for kind in kinds)
    assert all("wss://p.example/calls/" + kind.name in asked(kind) for kind in kinds)


def test_a_signed_stream_of_twilio_is_let_in_and_no_other() -> None:
    kind = twilio(auth_token="k", public_url="https://voice.example.com")
    signature = base64.b64encode(
        hmac.digest(b"k", b"wss://voice.example.com/twilio", "sha1")
    ).decode()
    good = Handshake(path="/twilio", headers={"host": "10.0.0.7", "x-twilio-signature": signature})
    assert lets_in(kind, good)
    assert not lets_in(kind, Handshake(path="/twilio", headers=HOST))
    assert not lets_in(kind, Handshake(path="/twilio/answer", headers=good.headers))


TELNYX_KEY = base64.b64encode(b"\x01" * 32).decode()
MAKERS: dict[str, Callable[[Callable[[], float]], StreamKind]] = {
    "twilio": lambda clock: twilio(auth_token="k", clock=clock),
    "telnyx": lambda clock: telnyx(stream_token="t", public_key=TELNYX_KEY, clock=clock),
    "plivo": lambda clock: plivo(auth_token="k", clock=clock),
    "exotel": lambda clock: exotel(user="u", password="p", clock=clock),
    "vonage": lambda clock: vonage(signature_secret="k", clock=clock),
    "jambonz": lambda clock: jambonz(user="u", password="p", clock=clock),
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_pass_of_the_start_answer_opens_one_stream_within_a_minute(name: str) -> None:
    time = [NOW]
    kind = MAKERS[name](lambda: time[0])

    def stream() -> Handshake:
        found = re.search(rf"/{name}/pass/[0-9a-f-]+", asked(kind))
        assert found is not None
        return Handshake(path=found.group(), headers=HOST)

    first, second, third = stream(), stream(), stream()
    assert lets_in(kind, first)
    assert not lets_in(kind, first), "it is used"
    time[0] += PASS_S - 1
    assert lets_in(kind, second), "another one of the same second is another pass"
    time[0] += 2
    assert not lets_in(kind, third)
    assert not lets_in(kind, first)


def test_a_signed_stream_with_a_pass_cannot_be_opened_again_by_its_signature() -> None:
    kind = twilio(auth_token="k", clock=lambda: NOW)
    found = re.search(r"/twilio/pass/[0-9a-f-]+", asked(kind))
    assert found is not None
    url = f"wss://voice.example.com{found.group()}"
    signature = base64.b64encode(hmac.digest(b"k", url.encode(), "sha1")).decode()
    headers = {**HOST, "x-twilio-signature": signature}
    stream = Handshake(path=found.group(), headers=headers)
    assert lets_in(kind, stream)
    assert not lets_in(kind, stream)


def signed_webhook(call: str, path: str = "/twilio/answer") -> Handshake:
    url = f"https://voice.example.com{path}?CallSid={call}"
    signature = base64.b64encode(hmac.digest(b"k", url.encode(), "sha1")).decode()
    headers = {**HOST, "x-twilio-signature": signature}
    return Handshake(path=path, query=f"CallSid={call}", headers=headers)


def pass_of(kind: StreamKind, webhook: Handshake) -> Handshake:
    assert kind.answer is not None
    assert lets_in(kind, webhook)
    found = re.search(r"/twilio/pass/[0-9a-f-]+", kind.answer(webhook)[1])
    assert found is not None
    return Handshake(path=found.group(), headers=HOST)


def test_a_signed_webhook_that_is_shown_again_opens_no_second_stream() -> None:
    time = [NOW]
    kind = twilio(auth_token="k", clock=lambda: time[0])
    webhook = signed_webhook("CA1")
    first, repeated = pass_of(kind, webhook), pass_of(kind, webhook)
    assert first == repeated, "a carrier may ask twice"
    other = pass_of(kind, signed_webhook("CA2"))
    assert lets_in(kind, first)
    assert lets_in(kind, other)
    for later in (1.0, 10 * PASS_S):
        time[0] = NOW + later
        assert not lets_in(kind, pass_of(kind, webhook))


def test_calls_of_one_second_whose_signatures_cover_no_address_have_their_own_passes() -> None:
    kind = jambonz(user="u", password="p", webhook_secret="s", clock=lambda: NOW)
    assert kind.answer is not None
    signature = hmac.new(b"s", f"{NOW:.0f}.".encode(), "sha256").hexdigest()
    headers = {**HOST, "jambonz-signature": f"t={NOW:.0f},v1={signature}"}
    answers = []
    for call in ("a", "b", "b"):
        webhook = Handshake(path="/jambonz/answer", query=f"call_sid={call}", headers=headers)
        assert lets_in(kind, webhook)
        found = re.search(r"/pass/[0-9a-f-]+", kind.answer(webhook)[1])
        assert found is not None
        answers.append(found.group())
    assert answers[0] != answers[1] == answers[2]


def test_signed_webhooks_that_are_remembered_are_bounded() -> None:
    passes = StreamPasses(b"k")
    for number in range(MAX_WEBHOOKS + 5):
        passes.path_for(number.to_bytes(4, "big"), NOW)
    assert len(passes._issued) == MAX_WEBHOOKS


def test_passes_that_were_used_are_forgotten_when_they_expire() -> None:
    passes = StreamPasses(b"k")
    for second in range(10 * PASS_S):
        assert passes.take(passes.path(NOW + second), NOW + second)
    assert len(passes._used) <= PASS_S + 2


def test_a_replica_with_the_same_key_knows_the_pass_and_one_with_another_does_not() -> None:
    path = passes_signed_with("k").path(NOW)
    assert passes_signed_with("", "k").take("/plivo" + path, NOW)
    assert not passes_signed_with("other").take("/plivo" + path, NOW)
    assert not passes_signed_with().take("/plivo" + passes_signed_with().path(NOW), NOW)


@pytest.mark.parametrize(
    "path",
    ["", "/pass/", "/pass/-", "/pass/99999999999-", "/pass/1\u0661-x", "/pass/" + "9" * 40 + "-x"],
)
def test_what_is_no_pass_opens_nothing(path: str) -> None:
    assert not StreamPasses(b"k").take("/plivo" + path, NOW)


def test_a_pass_proves_nothing_where_anybody_may_ask_for_one() -> None:
    admission = CarrierAdmission(
        streams=[HeaderToken("t")], passes=StreamPasses(b"k"), clock=lambda: NOW
    )
    webhook = Handshake(path="/x/answer", headers={"host": "h"})
    assert admission.stream_url(webhook) == "wss://h/x"
    with pytest.raises(Refused):
        admission(Handshake(path="/telnyx" + StreamPasses(b"k").path(NOW)))


def test_the_stream_of_telnyx_shows_its_token() -> None:
    kind = telnyx(stream_token="t")
    headers = {"x-telnyx-streaming-auth-token": "t"}
    assert lets_in(kind, Handshake(path="/telnyx", headers=headers))
    assert not lets_in(kind, Handshake(path="/telnyx"))
    assert lets_in(kind, Handshake(path="/telnyx/answer")), "the answer holds no secret"
    stream = Handshake(path="/telnyx/answer", headers={"upgrade": "websocket"})
    assert not lets_in(kind, stream), "a stream by the path of the answer"


def test_the_password_of_jambonz_is_given_only_to_who_knows_it() -> None:
    kind = jambonz(user="u", password="p")
    basic = {"authorization": "Basic " + base64.b64encode(b"u:p").decode()}
    for path in ("/jambonz", "/jambonz/answer"):
        assert lets_in(kind, Handshake(path=path, headers=basic))
        assert not lets_in(kind, Handshake(path=path))
    assert '"password": "p"' in asked(kind)
    assert kind.subprotocols == ("audio.jambonz.org",)


def test_exotel_shows_user_and_password_of_its_url() -> None:
    kind = exotel(user="u", password="p")
    basic = {"authorization": "Basic " + base64.b64encode(b"u:p").decode()}
    assert lets_in(kind, Handshake(path="/exotel", headers=basic))
    assert not lets_in(kind, Handshake(path="/exotel"))


def test_vonages_start_answer_hands_the_calls_ids_on() -> None:
    (action,) = json.loads(asked(vonage(), "uuid=u1&from=1555&to=1666&api_key=secret"))
    (endpoint,) = action["endpoint"]
    assert endpoint["headers"] == {"uuid": "u1", "from": "1555", "to": "1666"}
    assert endpoint["uri"] == "wss://voice.example.com/vonage"


def test_settings_that_no_carrier_has_are_refused() -> None:
    makers: list[Callable[[], StreamKind]] = [
        lambda: telnyx(plays="AMR-WB"),
        lambda: telnyx(plays="PCMU", plays_hz=16000),
        lambda: telnyx(plays="OPUS"),
        lambda: telnyx(public_key="no key"),
        lambda: vonage(rate_hz=44100),
        lambda: jambonz(rate_hz=11025),
        lambda: jambonz(plays_hz=1),
        lambda: twilio(public_url="voice.example.com"),
        lambda: plivo(public_url="https://["),
    ]
    for make in makers:
        with pytest.raises(BadRequest) as caught:
            make()
        assert caught.value.remedy


# --- REST


class Carrier:
    """Stands for a carrier's interface: keeps what it was asked, answers a status."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.requests: list[httpx.Request] = []
        self.transport = httpx.MockTransport(self._answer)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return httpx.Response(self.status, text="<html>secret page</html>")


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


async def test_a_call_of_twilio_is_ended_and_handed_on() -> None:
    carrier = Carrier()
    rest = TwilioRest("AC1", "t", transport=carrier.transport)
    await rest.hang_up("CA1")
    await rest.transfer("CA1", "+15550100")
    await rest.transfer("CA1", "sip:a@b?x=<y>")
    ended, number, address = carrier.requests
    assert (ended.method, str(ended.url)) == (
        "POST",
        "https://api.twilio.com/2010-04-01/Accounts/AC1/Calls/CA1.json",
    )
    assert ended.headers["authorization"] == _basic("AC1", "t")
    assert ended.content == b"Status=completed"
    assert b"Number%3E%2B15550100%3C" in number.content
    assert b"%3CSip%3Esip%3Aa%40b%3Fx%3D%26lt%3By%26gt%3B%3C%2FSip%3E" in address.content


async def test_a_call_of_telnyx_is_ended_handed_on_and_pressed_keys_on() -> None:
    carrier = Carrier()
    rest = TelnyxRest("k", transport=carrier.transport)
    await rest.hang_up("v2:T0/1")
    await rest.transfer("v2:x", "tel:+15550100")
    await rest.press("v2:x", "12#")
    ended, moved, pressed = carrier.requests
    assert str(ended.url) == "https://api.telnyx.com/v2/calls/v2%3AT0%2F1/actions/hangup"
    assert ended.headers["authorization"] == "Bearer k"
    assert json.loads(moved.content) == {"to": "+15550100"}
    assert json.loads(pressed.content) == {"digits": "12#"}


async def test_a_call_of_plivo_is_ended() -> None:
    carrier = Carrier(204)
    await PlivoRest("MA1", "t", transport=carrier.transport).hang_up("c-1")
    (ended,) = carrier.requests
    assert (ended.method, str(ended.url)) == (
        "DELETE",
        "https://api.plivo.com/v1/Account/MA1/Call/c-1/",
    )
    assert ended.headers["authorization"] == _basic("MA1", "t")


async def test_a_call_that_is_over_already_is_no_error() -> None:
    await TwilioRest("A", "t", transport=Carrier(404).transport).hang_up("c")
    await TelnyxRest("k", transport=Carrier(422).transport).hang_up("c")
    await PlivoRest("A", "t", transport=Carrier(404).transport).hang_up("c")


@pytest.mark.parametrize("status", [302, 400, 401, 500])
async def test_a_refusal_is_told_without_key_or_page(status: int) -> None:
    rest = TwilioRest("A", "the-token", transport=Carrier(status).transport)
    with pytest.raises(CarrierRefused) as caught:
        await rest.hang_up("c")
    assert caught.value.status == status
    assert caught.value.remedy
    assert "the-token" not in str(caught.value) + repr(rest)
    assert "secret" not in str(caught.value)


async def test_an_interface_that_cannot_be_reached_is_told() -> None:
    def broken(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no route", request=request)

    rest = PlivoRest("A", "t", transport=httpx.MockTransport(broken))
    with pytest.raises(CarrierRefused, match="ConnectError") as caught:
        await rest.hang_up("c")
    assert caught.value.status is None


@pytest.mark.parametrize("call_id", ["", ".", ".."])
async def test_a_call_without_an_id_is_not_asked_for(call_id: str) -> None:
    with pytest.raises(CarrierRefused):
        await TelnyxRest("k", transport=Carrier().transport).hang_up(call_id)
