"""From a model's first token to the first frame at the telephony plugin, in a real MindRoot.

The host, with the plugin and two helper plugins of the tests, runs as a process of its own, and so
does the speech server. A scripted model writes a sentence, 20 ms a token; a stand-in for the
telephony plugin notes when each frame is handed over. All of them share the machine's monotonic
clock, so each turn is taken apart:

- *the words*: until the host has given the plugin the words that the speech server begins with.
  The model has to write them first, and the host passes its text on at most every 50 ms (JSON mode)
  or every 8 characters (XML mode); what of it is the host's delay is shown beside it.
- *the engine*: from the first text that can be spoken to the engine's first sound.
- *ours*: all the rest. Taking the words from the host, sending them, receiving the sound, 24 to
  8 kHz, mu-law, and the wait for the next frame's time.

Beside it: the same sentence spoken only when the model has finished it, as a plugin does that takes
no partial commands. *Before the end*: the first frame came before the sentence's last token.
*Silent ticks*: the telephony plugin sends a frame every 20 ms; one for which none lay ready.

With ``--calls``: so many calls at once for ``--seconds``, each with sentences of its own. What each
caller heard is compared with what the engine said for this call, and the host's memory is watched.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import Bench
from server_process import ServerProcess

from qwen3tts_speech.latency import Mark, UtteranceRecord, read_log
from tests.mindroot_host.hearing import heard_whole
from tests.mindroot_host.host import Call, Host, speaking, times, xml
from tests.mindroot_host.install import STAMP
from tests.mindroot_host.playout import played
from tests.mindroot_host.speech_server import SpeechServer, said

SENTENCE = (
    "Good morning and thank you for calling us today, my name is Clara and I will be glad to help "
    "you with your booking for the weekend in Vienna"
)
"""One sentence, some 30 tokens."""
TOKEN_MS = 20
GAP_S = 0.1
"""Between two turns of a call."""
ENGINES = ("embedded", "tiny")


@dataclass(frozen=True)
class Turn:
    """One reply; milliseconds."""

    total: float
    """From the model's first token to the first frame at the telephony plugin."""
    words: float
    throttle: float
    """Of that, from the token with which the words were written to their partial command."""
    engine: float
    ours: float
    before_end: bool
    silent_ticks: int


def taken_apart(
    tokens: Sequence[tuple[float, int]],
    text: str,
    events: Sequence[tuple[float, str, Any]],
    record: UtteranceRecord,
) -> Turn:
    """One turn from what was noted of it; all times on the machine's monotonic clock.

    Args:
        tokens: when each was written, and its characters.
        text: what the model wrote in all.
        events: of the telephony plugin, of this turn.
        record: the plugin's own record of the utterance.
    """
    playout = played(events)
    first_frame = playout.responses[0].first_chunk
    assert first_frame is not None
    begun = tokens[0][0]
    ready, first_pcm = record.marks[Mark.SEGMENT_READY], record.marks[Mark.FIRST_PCM]
    # The partial command with which the server had enough: the last one before it began.
    partials = [(at, value) for at, what, value in events if what == "partial" and at <= ready]
    given, characters = partials[-1] if partials else (ready, 0)
    start = text.index(SENTENCE[:4])
    written, length = begun, 0
    for at, count in tokens:
        length += count
        written = at
        if length >= start + characters:
            break
    engine = first_pcm - ready
    return Turn(
        total=(first_frame - begun) * 1000,
        words=(given - begun) * 1000,
        throttle=max(0.0, given - written) * 1000,
        engine=engine * 1000,
        ours=(first_frame - given - engine) * 1000,
        before_end=first_frame < tokens[-1][0],
        silent_ticks=playout.silent_ticks,
    )
