from __future__ import annotations

import pytest

from qwen3tts_phone.errors import StreamLost
from qwen3tts_phone.softphone.webrtc.settings import WebRtcSettings
from qwen3tts_phone.softphone.webrtc.transport import REPORTS_S, TransportWatchdog


def watch() -> TransportWatchdog:
    return TransportWatchdog(WebRtcSettings(), 100.0)


def test_the_first_sound_is_news_and_the_second_is_not() -> None:
    line = watch()
    assert line.sound(100.1)
    assert not line.sound(100.12)


def test_a_silence_of_all_is_told_once_and_so_is_its_end() -> None:
    line = watch()
    line.sound(101.0)
    assert line.news(102.9) is None
    assert line.news(103.1) == pytest.approx(2.1)
    assert (line.lost, line.news(103.6)) == (True, None)
    assert line.sound(104.0)
    assert (line.lost, line.news(106.1) is not None) == (False, True)


def test_a_microphone_that_is_off_is_no_lost_network() -> None:
    line = watch()
    line.sound(101.0)
    for at in (104.0, 108.0, 112.0):
        line.report(at)
        assert line.news(at + 3.9) is None
    assert line.news(112.0 + REPORTS_S) is not None


def test_a_browser_that_only_listens_is_waited_for_by_its_reports() -> None:
    line = watch()
    assert line.news(105.0) is None
    assert not line.report(105.0)
    assert line.news(105.0 + REPORTS_S) is not None
    assert line.report(114.0)


def test_who_is_not_heard_of_for_long_has_vanished() -> None:
    line = watch()
    line.sound(101.0)
    assert line.vanished(120.9) is None
    lost = line.vanished(121.0)
    assert isinstance(lost, StreamLost)
    assert lost.remedy


@pytest.mark.parametrize(
    ("name", "value"),
    [("connect_s", 0.0), ("silent_s", float("nan")), ("vanished_s", 1.0)],
)
def test_settings_that_make_no_sense_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{name}"):
        WebRtcSettings(**{name: value})  # type: ignore[arg-type]
