from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_server.transcode import Transcoder
from qwen3tts_wire.alignment import Word
from qwen3tts_wire.formats import FORMATS, AudioFormat
from tests.server.driver import tone

IDS = [f"{each.encoding}-{each.sample_rate}" for each in FORMATS]


def test_the_engines_own_form_passes_untouched() -> None:
    transcoder = Transcoder(24_000, AudioFormat())
    pcm = tone(1000)
    assert transcoder.push(pcm) is pcm
    assert transcoder.flush() == b""
    assert transcoder.samples == 1000


@pytest.mark.parametrize("form", FORMATS, ids=IDS)
@settings(deadline=None)
@given(st.lists(st.integers(0, 500), min_size=1, max_size=8))
def test_the_portions_do_not_change_the_sound(form: AudioFormat, sizes: list[int]) -> None:
    pcm = tone(sum(sizes))
    whole, parts = Transcoder(24_000, form), Transcoder(24_000, form)
    expected = whole.push(pcm) + whole.flush()
    got, at = b"", 0
    for size in sizes:
        got += parts.push(pcm[2 * at : 2 * (at + size)])
        at += size
    got += parts.flush()
    assert got == expected
    assert parts.samples == round(sum(sizes) * form.sample_rate / 24_000)
    assert len(got) == parts.samples * form.bytes_per_sample


def test_words_of_later_stretches_lie_behind_the_earlier_ones() -> None:
    transcoder = Transcoder(24_000, AudioFormat("mulaw", 8000))
    transcoder.push(tone(2400))
    assert transcoder.engine_position == 2400
    assert transcoder.word(Word("a", 240, 480, 0, 1), 2400) == Word("a", 880, 960, 0, 1)
    transcoder.flush()
    assert transcoder.engine_position == 0
    assert transcoder.word(Word("b", 240, 480, 0, 1), 0) == Word("b", 880, 960, 0, 1)
