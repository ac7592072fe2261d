"""Our Pipecat service and our LiveKit plugin, in a pipeline and a session of theirs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from qwen3tts_server.run import running_server
from tests.clients.conftest import ROOT, Client
from tests.engine.fake_engine import CHAR_SAMPLES, FakeEngine
from tests.server.relay import Relay, relay

pytestmark = pytest.mark.network

WRITTEN = "Good morning. The telecommunications department opens at nine and closes at ten"
REPLY = f"{WRITTEN}."
UNFINISHED = f"{WRITTEN} | on every day."
"""The model stops in the middle of a sentence, until it is interrupted."""
SHORT = "Good morning. One moment, please."
SECONDS = 1.2
"""What it takes at least."""
CUT_S = 2.0
"""The listener interrupts in the second half of the long word."""
HEARD = "Good morning. The telecommunications"
TONES = "One two three, four five six. Seven eight nine ten! Eleven twelve."
TONES_SAMPLES = (len(TONES) - 2) * CHAR_SAMPLES
"""The spaces between its sentences are not said."""


def speech_url(server: str) -> str:
    return "ws" + server.removeprefix("http") + "/v1/speech"


def given(**options: Any) -> str:
    return json.dumps(options)


@contextlib.asynccontextmanager
async def tones(cut_after: int | None = None) -> AsyncIterator[tuple[FakeEngine, Relay, str]]:
    """A server whose sound is known to the sample, and a way to it that can be cut."""
    engine = FakeEngine(live=True)
    async with running_server(engine) as server, relay(server.port) as way:
        way.cut_after = cut_after
        yield engine, way, f"ws://127.0.0.1:{way.port}/v1/speech"


# --- Pipecat ---


@pytest.mark.parametrize("mode", ["token", "sentence"])
async def test_a_pipecat_pipeline_says_a_reply_and_remembers_it(
    server: str, client: Client, mode: str
) -> None:
    got = await client("pipecat_agent.py", speech_url(server), given(reply=SHORT, mode=mode))
    assert got["errors"] == []
    assert got["context"] == [SHORT]
    assert got["rates"] == [24_000]
    assert got["samples"] > SECONDS * 24_000
    assert got["loud"] > 20
    assert got["counts"] == {"TTSStartedFrame": 1, "TTSStoppedFrame": 1}
    assert got["events"] == ["connected", "disconnected"]
    assert "ttfb" in got["measured"]


@pytest.mark.parametrize(("pipeline", "spoken"), [(8000, 8000), (48_000, 24_000)])
async def test_the_voice_speaks_at_the_pipelines_rate_where_the_server_has_it(
    client: Client, pipeline: int, spoken: int
) -> None:
    async with tones() as (_, _, url):
        got = await client("pipecat_agent.py", url, given(speak=["One two."], rate=pipeline))
    assert got["rates"] == [spoken]
    assert got["samples"] == len("One two.") * CHAR_SAMPLES * spoken // 24_000


@pytest.mark.parametrize(
    ("mode", "reply"), [("token", UNFINISHED), ("token", REPLY), ("sentence", REPLY)]
)
async def test_an_interrupted_pipecat_pipeline_remembers_exactly_what_was_heard(
    server: str, client: Client, mode: str, reply: str
) -> None:
    options = given(reply=reply, mode=mode, cut_s=CUT_S)
    got = await client("pipecat_agent.py", speech_url(server), options)
    assert got["errors"] == []
    ((heard, remaining, played),) = got["heard"]
    assert heard == HEARD
    assert got["context"] == [HEARD]
    assert (heard + remaining).rstrip() == (WRITTEN if reply is UNFINISHED else REPLY)
    # The device takes its sound in pieces of 40 ms.
    assert played >= (CUT_S - 0.04) * 24_000
    # Also where all was made, and only played, when it was cut off.
    assert got["cut_while_writing"] is (reply is UNFINISHED)
    assert got["usable"]


async def test_after_an_interruption_only_the_new_reply_is_heard(client: Client) -> None:
    reply = "One telecommunications department. Two."
    async with tones() as (_, _, url):
        # The long word lasts from 0.2 to 1.1 s.
        got = await client("pipecat_agent.py", url, given(reply=reply, cut_s=0.9, again="Yes."))
    ((heard, *_),) = got["heard"]
    assert heard == "One telecommunications"
    assert got["context"] == [heard, "Yes."]
    assert got["last_samples"] == len("Yes.") * CHAR_SAMPLES


async def test_what_may_not_be_interrupted_is_said_to_its_end(client: Client) -> None:
    async with tones() as (_, _, url):
        got = await client(
            "pipecat_agent.py", url, given(speak=["One two three."], firm=True, cut_s=0.2)
        )
    assert got["heard"] == []
    assert got["samples"] == len("One two three.") * CHAR_SAMPLES
    assert got["counts"] == {"TTSStartedFrame": 1, "TTSStoppedFrame": 1}
    # Pipecat itself keeps what comes after an interruption for the next message.
    assert "One two three.".startswith(got["context"][0])


async def test_an_interruption_frees_the_engine(client: Client) -> None:
    async with tones() as (engine, _, url):
        got = await client(
            "pipecat_agent.py", url, given(reply="Good morning.", voice="stall", cut_s=0.04)
        )
        assert engine.cancelled == 1
        assert engine.active == 0
    ((heard, remaining, _),) = got["heard"]
    assert (heard, remaining) == ("", "Good morning.")
    assert got["context"] == []


async def test_several_utterances_are_said_one_after_the_other(server: str, client: Client) -> None:
    texts = ["Good morning.", "One moment, please."]
    got = await client("pipecat_agent.py", speech_url(server), given(speak=texts))
    assert got["context"] == texts
    assert got["counts"] == {"TTSStartedFrame": 2, "TTSStoppedFrame": 2}


async def test_a_changed_voice_speaks_from_the_next_word_on(client: Client) -> None:
    async with tones() as (engine, _, url):
        got = await client(
            "pipecat_agent.py",
            url,
            given(reply="One two three four.", voice="tone", then_voice="tone-de"),
        )
        assert [each.voice for each in engine.requests] == ["tone", "tone-de"]
        said = " ".join(each.text for each in engine.requests)
    assert got["context"] == ["One two three four."]
    assert got["counts"] == {"TTSStartedFrame": 2, "TTSStoppedFrame": 2}
    assert said.split() == ["One", "two", "three", "four."]


async def test_a_pipecat_utterance_goes_on_when_the_connection_is_lost(client: Client) -> None:
    async with tones(cut_after=60_000) as (_, way, url):
        got = await client("pipecat_agent.py", url, given(reply=TONES))
        assert way.connections == 2
    assert got["errors"] == []
    assert got["context"] == [TONES]
    # Where it was cut, half a word may be missing, or be there twice; spaces between pieces of the
    # text that were said apart, since it came slowly, are not said.
    least = len(TONES.replace(" ", "")) - 6
    assert least * CHAR_SAMPLES < got["samples"] < (len(TONES) + 6) * CHAR_SAMPLES


async def test_without_word_times_whole_sentences_enter_the_conversation(client: Client) -> None:
    async with tones() as (engine, _, url):
        engine.alignment = "none"
        got = await client("pipecat_agent.py", url, given(reply="One two. Three four."))
    assert got["errors"] == []
    (said,) = got["context"]
    assert said.split() == ["One", "two.", "Three", "four."]


@pytest.mark.parametrize(
    ("voice", "category", "usable", "says"),
    [("nobody", "invalid_request", False, "nobody"), ("fail", "server", True, "told to fail")],
)
async def test_what_fails_is_reported_once_and_nothing_of_it_is_remembered(
    client: Client, voice: str, category: str, usable: bool, says: str
) -> None:
    async with tones() as (_, _, url):
        got = await client("pipecat_agent.py", url, given(reply=TONES, voice=voice))
    (error, *silent) = got["errors"]
    assert error.startswith(f"{category}: ")
    assert says in error
    assert all("no audio" in each for each in silent)
    assert got["usable"] is usable
    assert got["context"] == []
    assert got["counts"] == {"TTSStartedFrame": 1, "TTSStoppedFrame": 1}


async def test_a_server_that_is_not_there_is_reported_once_for_each_utterance(
    client: Client,
) -> None:
    async with tones() as (_, _, url):
        pass
    got = await client("pipecat_agent.py", url, given(reply=TONES))
    at_start, at_reply, *silent = got["errors"]
    for error in (at_start, at_reply):
        assert error.startswith("connectivity: ")
        assert "mr-qwen3tts serve" in error
    assert all("no audio" in each for each in silent)
    assert got["usable"]
    assert got["context"] == []


async def test_a_reply_with_nothing_to_say_is_no_fault(client: Client) -> None:
    async with tones() as (_, _, url):
        got = await client("pipecat_agent.py", url, given(reply="\N{GRINNING FACE}"))
    assert got["errors"] == []
    assert got["usable"]
    assert got["context"] == ["\N{GRINNING FACE}"]


# --- LiveKit ---


async def test_a_livekit_agent_says_a_reply_and_remembers_it(server: str, client: Client) -> None:
    got = await client("livekit_agent.py", speech_url(server), given(reply=SHORT))
    assert got["errors"] == []
    assert got["history"] == got["captions"] == got["heard"] == SHORT
    assert not got["interrupted"]
    assert got["remaining"] == ""
    assert got["position"] > SECONDS
    assert got["loud"] > 20
    assert got["model"] != "unknown"


@pytest.mark.parametrize("reply", [UNFINISHED, REPLY])
async def test_an_interrupted_livekit_agent_remembers_exactly_what_was_heard(
    server: str, client: Client, reply: str
) -> None:
    options = given(reply=reply, cut_s=CUT_S)
    got = await client("livekit_agent.py", speech_url(server), options)
    assert got["errors"] == []
    assert got["interrupted"]
    assert got["cut_while_writing"] is (reply is UNFINISHED)
    assert got["history"] == got["heard"] == HEARD
    # LiveKit holds the last word back while it is not sure of its end.
    written = got["heard"] + got["remaining"]
    assert WRITTEN.startswith(written) if reply is UNFINISHED else written == REPLY
    assert got["connected"], "an interruption costs no connection"


async def test_a_livekit_agent_goes_on_after_an_interruption(client: Client) -> None:
    async with tones() as (_, _, url):
        got = await client("livekit_agent.py", url, given(reply=TONES, cut_s=0.6, again="Yes."))
    assert got["history"] == got["heard"]
    assert got["then"] == "Yes."
    assert got["then_s"] == pytest.approx(len("Yes.") * CHAR_SAMPLES / 24_000, abs=0.02)


async def test_a_stream_gives_the_words_with_their_times(client: Client) -> None:
    async with tones() as (_, _, url):
        live, whole, slow, *_ = await client(
            "livekit_stream.py",
            url,
            given(text=TONES),
            given(text=TONES, whole=True, prewarm=True),
            given(text=TONES, sample_rate=8000),
        )
    for each in (live, whole, slow):
        assert each["errors"] == []
        assert "".join(each["pieces"]) == TONES
        assert each["aligned"]
    assert live["rates"] == whole["rates"] == [24_000]
    assert live["samples"] == TONES_SAMPLES
    assert slow["rates"] == [8000]
    assert slow["samples"] == TONES_SAMPLES // 3
    assert live["times"][:2] == [[0.0, 0.15], [0.2, 0.35]]
    assert live["times"] == whole["times"] == slow["times"]
    assert (live["was_connected"], whole["was_connected"]) == (False, True)


async def test_a_livekit_stream_goes_on_when_the_connection_is_lost(client: Client) -> None:
    async with tones(cut_after=60_000) as (_, way, url):
        (got,) = await client("livekit_stream.py", url, given(text=TONES))
        assert way.connections == 2
    assert got["errors"] == []
    assert "".join(got["pieces"]) == TONES
    # Where it was cut, half a word may be missing, or be there twice; spaces between pieces of the
    # text that were said apart, since it came slowly, are not said.
    least = len(TONES.replace(" ", "")) - 6
    assert least * CHAR_SAMPLES < got["samples"] < (len(TONES) + 6) * CHAR_SAMPLES


async def test_a_stream_that_is_left_frees_the_engine(client: Client) -> None:
    async with tones() as (engine, _, url):
        (got,) = await client(
            "livekit_stream.py", url, given(text=TONES, voice="stall", leave=True)
        )
        assert engine.cancelled == 1
        assert engine.active == 0
    assert got["errors"] == []


async def test_changed_options_hold_from_the_next_stream_on(client: Client) -> None:
    async with tones() as (engine, _, url):
        await client("livekit_stream.py", url, given(text="One.", speed=1.5, then_voice="tone-de"))
        (request,) = engine.requests
    assert (request.voice, request.speed) == ("tone-de", 1.5)


async def test_what_fails_comes_as_livekits_own_errors(client: Client) -> None:
    async with tones() as (engine, _, url):
        nobody, broken, stuck, silent = await client(
            "livekit_stream.py",
            url,
            given(text="One.", voice="nobody"),
            given(text="One.", voice="fail"),
            given(text="One.", voice="step", timeout=0.3),
            given(text="\N{GRINNING FACE}"),
        )
        assert engine.active == 0
    assert (nobody["error"], nobody["status"]) == ("APIStatusError", 404)
    assert "nobody" in nobody["message"]
    # Tried again only where that may help; the second time is the last.
    assert nobody["errors"] == [False]
    assert broken["error"] == "APIError"
    assert broken["errors"] == [True, False]
    assert stuck["error"] == "APITimeoutError"
    assert stuck["errors"] == [True, False]
    assert silent["errors"] == []
    assert "error" not in silent
    (gone,) = await client("livekit_stream.py", url, given(text="One.", timeout=1))
    assert gone["error"] == "APIConnectionError"
    assert "mr-qwen3tts serve" in gone["message"]


async def test_a_server_without_word_times_gives_livekit_no_alignment(client: Client) -> None:
    async with tones() as (engine, _, url):
        engine.alignment = "none"
        (got,) = await client("livekit_stream.py", url, given(text=TONES))
    assert not got["aligned"]
    assert got["samples"] == TONES_SAMPLES


# --- both ---


async def test_the_documents_show_code_that_there_is(client: Client) -> None:
    documents = ("docs/integrations.md", "integrations/pipecat/README.md")
    more = "integrations/livekit/README.md"
    got = await client("document_code.py", *(str(ROOT / each) for each in (*documents, more)))
    assert got == {
        "docs/integrations.md": [[], []],
        "pipecat/README.md": [[]],
        "livekit/README.md": [[]],
    }


async def test_the_parts_that_need_no_server(client: Client) -> None:
    got = await client("integration_parts.py")
    timed = got["timed"]
    # Each word with the space before it and the signs that close it; told twice, given once.
    assert timed["pieces"][:3] == ["He", " said:", ' "No,"']
    assert "".join(timed["pieces"]) == timed["text"]
    assert timed["times"] == [[number, number + 0.5] for number in range(7)]
    assert timed["late"] == ["He", " said:", ' "No', ',"' + " and"]
    assert timed["untold"] == []
    # Half of a word is a word.
    assert timed["heard"][:5] == ["", "", "He", "He said:", 'He said: "No,"']
    assert timed["heard"][5] == timed["text"]
    assert timed["no_times"] == "One two"

    one = got["utterance"]
    assert [word for word, _, _ in one["words"]] == [
        "He",
        "said:",
        'No,"',
        "and",
        "went.",
        "你好",
        "世界",
    ]
    assert [heard_s for _, heard_s, _ in one["words"]] == [number + 0.25 for number in range(7)]
    assert [unspaced for _, _, unspaced in one["words"]] == [False] * 5 + [True] * 2
    # Two seconds, of which the last is heard at six.
    assert one["played"] == [0, 0, 4000, 10_000, 16_000, 16_000]
    assert one["over"] == [False] * 4 + [True] * 2
    # A word behind a pause in the text is heard so much later.
    assert one["told"] == 3.0
    assert one["later"] == [0.5, 3.0, 4.5]
    # Pipecat waits no longer, and counts from the next sound on.
    assert one["again"] == [0.5, 0.75]
    assert not one["part"], "not all of it was given to the pipeline"

    faults = got["faults"]
    assert all(says for _, _, _, says, *_ in faults.values())
    assert faults["UnknownVoice"][:3] == ["APIStatusError", 404, False]
    assert faults["ServerBusy"][:3] == ["APIStatusError", 503, True]
    assert faults["ConnectionLost"][:3] == ["APIConnectionError", None, True]
    assert faults["EngineFailed"][:3] == ["APIError", None, True]
    assert faults["EngineUnavailable"][:3] == ["APIError", None, False]
    permanent = {name for name, (*_, forever) in faults.items() if forever}
    assert permanent == {"BadRequest", "UnknownVoice"}, "a bad text costs no service"
    assert [each.split(":")[0] for each in got["rates"]] == ["11025", "48000"]
