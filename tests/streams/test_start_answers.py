from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from qwen3tts_phone.streams.carriers.adapter import Handshake
from qwen3tts_phone.streams.carriers.exotel import exotel_answer
from qwen3tts_phone.streams.carriers.http import call_parameters, stream_url, webhook_fields
from qwen3tts_phone.streams.carriers.jambonz import jambonz_answer
from qwen3tts_phone.streams.carriers.plivo import plivo_answer
from qwen3tts_phone.streams.carriers.telnyx import telnyx_answer
from qwen3tts_phone.streams.carriers.twilio import twilio_answer
from qwen3tts_phone.streams.carriers.vonage import vonage_answer

URL = "wss://voice.example.com/x"
NASTY = {"from": '"/><Hangup/>&', "it's": "<b>"}
HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'


def test_twilio_is_told_to_connect_both_ways() -> None:
    kind, body = twilio_answer(URL, {"from": "+15550100"})
    assert kind == "application/xml"
    assert body == (
        HEAD + '<Response><Connect><Stream url="wss://voice.example.com/x">'
        '<Parameter name="from" value="+15550100"/></Stream></Connect></Response>'
    )


def test_telnyx_is_told_to_play_what_is_sent() -> None:
    _, body = telnyx_answer(URL, codec="L16", rate_hz=16000)
    assert body == (
        HEAD + '<Response><Connect><Stream url="wss://voice.example.com/x" track="inbound_track"'
        ' bidirectionalMode="rtp" bidirectionalCodec="L16" bidirectionalSamplingRate="16000">'
        "</Stream></Connect></Response>"
    )


def test_plivo_is_told_to_stay_and_gets_letters_and_digits_only() -> None:
    _, body = plivo_answer(URL, {"from": "+1 555-0100", "a_b": "c", "e": "é"})
    assert body == (
        HEAD + '<Response><Stream bidirectional="true" keepCallAlive="true" audioTrack="inbound"'
        ' contentType="audio/x-mulaw;rate=8000" extraHeaders="from=15550100,ab=c">'
        "wss://voice.example.com/x</Stream></Response>"
    )


@pytest.mark.parametrize("answer", [twilio_answer, telnyx_answer])
def test_what_a_caller_wrote_stays_a_value(answer: object) -> None:
    assert callable(answer)
    _, body = answer(URL + "?a=1&b=<2>", NASTY)
    root = ElementTree.fromstring(body.removeprefix(HEAD))
    (stream,) = root.iter("Stream")
    assert stream.get("url") == URL + "?a=1&b=<2>"
    assert {each.get("name"): each.get("value") for each in stream} == NASTY
    assert not list(root.iter("Hangup"))


def test_exotel_gets_an_address_and_the_rate_in_it() -> None:
    assert json.loads(exotel_answer(URL)[1]) == {"url": URL}
    assert json.loads(exotel_answer(URL, rate_hz=16000)[1]) == {"url": URL + "?sample-rate=16000"}


def test_vonage_is_connected_and_signs_where_a_signature_is_looked_at() -> None:
    _, body = vonage_answer(URL, {"uuid": "u"}, rate_hz=24000, signed=True)
    assert json.loads(body) == [
        {
            "action": "connect",
            "endpoint": [
                {
                    "type": "websocket",
                    "uri": URL,
                    "content-type": "audio/l16;rate=24000",
                    "headers": {"uuid": "u"},
                    "authorization": {"type": "vonage"},
                }
            ],
        }
    ]
    assert "authorization" not in vonage_answer(URL)[1]


def test_jambonz_listens_both_ways_and_hangs_up_afterwards() -> None:
    answer, listen, hang_up = json.loads(jambonz_answer(URL, rate_hz=16000, user="u")[1])
    assert (answer, hang_up) == ({"verb": "answer"}, {"verb": "hangup"})
    assert listen["bidirectionalAudio"] == {
        "enabled": True,
        "streaming": True,
        "sampleRate": 16000,
    }
    assert (listen["sampleRate"], listen["mixType"], listen["passDtmf"]) == (16000, "mono", True)
    assert listen["wsAuth"] == {"username": "u", "password": ""}


def test_the_stream_goes_where_the_webhook_was_asked() -> None:
    handshake = Handshake(
        path="/twilio/answer", query="From=%2B1", headers={"host": "voice.example.com"}
    )
    assert stream_url(handshake) == "wss://voice.example.com/twilio"
    assert stream_url(handshake, "https://p.example/q") == "wss://p.example/q/twilio"


def test_only_who_calls_whom_is_handed_on_and_not_without_bound() -> None:
    long = "9" * 500
    handshake = Handshake(query=f"From=%2B1&To={long}&Direction=inbound&Secret=s&x=%00%1b")
    fields = webhook_fields(handshake)
    assert call_parameters(fields) == {"from": "+1", "to": "9" * 128, "direction": "inbound"}
    assert fields["x"] == ""
    assert webhook_fields(Handshake(query="&".join(f"a{n}=1" for n in range(300)))) == {}
