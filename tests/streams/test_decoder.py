from __future__ import annotations

import numpy as np

from qwen3tts_codecs.g711 import PCMU
from qwen3tts_codecs.l16 import slin
from qwen3tts_phone.streams.carriers.adapter import StreamAudio, StreamLost
from qwen3tts_phone.streams.inbound import MAX_AHEAD_S, StreamDecoder

TONE = np.rint(8000 * np.sin(np.arange(160) / 5)).astype(np.int16)
FRAME = PCMU.encode(TONE)


def test_frames_follow_each_other_where_no_time_is_given() -> None:
    hearing = StreamDecoder()
    heard = [each for _ in range(3) for each in hearing.take(StreamAudio(FRAME), PCMU, 5.0)]
    assert [each.timestamp for each in heard] == [0, 160, 320]
    assert [len(each.samples) for each in heard] == [160] * 3


def test_a_time_further_on_is_taken_over_and_one_of_the_past_is_not() -> None:
    hearing = StreamDecoder()
    times = [0.0, 20.0, 100.0, 40.0, (MAX_AHEAD_S + 99) * 1000, -1e15]
    heard = [each for time in times for each in hearing.take(StreamAudio(FRAME, time), PCMU, 5.0)]
    assert [each.timestamp for each in heard] == [0, 160, 800, 960, 1120, 1280]


def test_a_long_message_is_cut() -> None:
    hearing = StreamDecoder()
    heard = hearing.take(StreamAudio(FRAME * 5), PCMU, 5.0)
    assert sum(len(each.samples) for each in heard) == 800
    assert max(each.duration_s for each in heard) <= 0.06


def test_a_hole_is_concealed_as_long_as_it_is_and_no_longer_than_that() -> None:
    hearing = StreamDecoder()
    hearing.take(StreamAudio(FRAME), PCMU, 5.0)
    heard = hearing.lost(StreamLost(40.0), PCMU, 5.0)
    assert [(each.concealed, len(each.samples)) for each in heard] == [(True, 160)] * 2
    assert np.abs(heard[0].samples).max() > 1000
    assert len(hearing.lost(StreamLost(1e9), PCMU, 5.0)) == 10


def test_another_rate_in_the_middle_is_heard_at_its_own() -> None:
    hearing = StreamDecoder()
    first = hearing.take(StreamAudio(bytes(320)), slin(8000), 5.0)
    second = hearing.take(StreamAudio(bytes(960)), slin(24_000), 5.0)
    assert [each.rate_hz for each in (*first, *second)] == [8000, 24_000]
    assert second[0].timestamp == 480


def test_what_is_no_sound_of_its_format_is_concealed_and_counted() -> None:
    hearing = StreamDecoder()
    hearing.take(StreamAudio(bytes(320)), slin(8000), 5.0)
    (heard,) = hearing.take(StreamAudio(b"abc"), slin(8000), 5.0)
    assert heard.concealed
    assert hearing.undecodable == 1
