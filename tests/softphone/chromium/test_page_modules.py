"""The page's own rules, without a server: its modules are loaded by Chromium and asked directly."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from qwen3tts_phone.softphone.site import page_files
from tests.conftest import require_package
from tests.softphone.browser import Chromium, Visit

pytestmark = [pytest.mark.network, pytest.mark.asyncio(loop_scope="module")]

BLANK = "<!doctype html><html lang=en><link rel=icon href=data:,><title>modules</title>"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def modules(chromium: Chromium) -> AsyncIterator[Visit]:
    """A blank page that can import the page's files under their own names."""
    web = require_package("aiohttp.web", "pip install 'mr_qwen3tts[webrtc]'")
    files = page_files()

    async def answer(request: Any) -> Any:
        file = files.get(request.match_info.get("name", ""))
        if file is None:
            return web.Response(text=BLANK, content_type="text/html")
        return web.Response(body=file.body, content_type=file.kind)

    app = web.Application()
    app.router.add_get("/", answer)
    app.router.add_get("/static/{name}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        async with chromium.visit(f"http://{host}:{port}/") as visit:
            yield visit
    finally:
        await runner.cleanup()


async def asked(visit: Visit, module: str, body: str, given: object = None) -> Any:
    """What a function body gives that has the module's names in ``m`` and the argument in ``g``."""
    script = f"async (g) => {{ const m = await import('/static/{module}'); {body} }}"
    return await visit.page.evaluate(script, given)


TYPE = """
const sent = [];
const send = (type, fields) => sent.push([type, fields.utterance, fields.text ?? null]);
const typed = new m.TypedWords(send);
const box = [];
for (const [what, text, time] of g) {
  if (what === 'type') box.push(typed.typed(text, time));
  else if (what === 'enter') typed.end(text);
  else if (what === 'drop') typed.drop();
  else if (what === 'caller') typed.speakAs(text === 'yes');
  else if (what === 'paused') box.push(typed.paused(time));
}
return { sent, box };
"""


async def typing(visit: Visit, *steps: tuple[str, str, float]) -> dict[str, Any]:
    found = await asked(visit, "typed_words.js", TYPE, [list(step) for step in steps])
    return dict(found)


async def test_only_complete_words_leave_the_box(modules: Visit) -> None:
    found = await typing(modules, ("type", "Good mor", 0), ("type", "morning ", 9))
    assert found["sent"] == [["type", 1, "Good "], ["type", 1, "morning "]]
    assert found["box"] == ["mor", ""]


async def test_enter_says_the_rest_and_ends_the_utterance(modules: Visit) -> None:
    found = await typing(
        modules, ("type", "One two", 0), ("enter", "two", 1), ("enter", "three", 2)
    )
    assert found["sent"] == [
        ["type", 1, "One "],
        ["type", 1, "two"],
        ["type_end", 1, None],
        ["type", 2, "three"],
        ["type_end", 2, None],
    ]


async def test_enter_in_an_empty_box_says_nothing(modules: Visit) -> None:
    found = await typing(modules, ("enter", "", 0), ("enter", "   ", 1), ("type", "  ", 2))
    assert found["sent"] == []


async def test_a_pause_is_one_after_a_second_and_a_half_and_only_after_words(
    modules: Visit,
) -> None:
    steps = [("paused", "", 9000.0), ("type", "hello", 10000.0)]
    steps += [("paused", "", 11499.0), ("paused", "", 11500.0)]
    found = await typing(modules, *steps)
    assert found["box"] == [False, "hello", False, True]


async def test_an_interruption_forgets_the_word_that_was_not_said(modules: Visit) -> None:
    found = await typing(modules, ("type", "One tw", 0), ("drop", "", 1), ("enter", "next", 2))
    assert found["sent"][1:] == [["type_end", 1, None], ["type", 2, "next"], ["type_end", 2, None]]


async def test_a_callers_turn_leaves_the_box_whole_and_by_enter_alone(modules: Visit) -> None:
    steps = [("caller", "yes", 0.0), ("type", "Good morning ", 0.0), ("paused", "", 60_000.0)]
    steps += [("enter", "Good morning you.", 1.0), ("enter", "  ", 2.0)]
    steps += [("caller", "no", 3.0), ("type", "And ", 4.0), ("caller", "yes", 5.0)]
    found = await typing(modules, *steps)
    assert found["box"] == ["Good morning ", False, ""]
    assert [each[0] for each in found["sent"]] == ["say", "type", "type_end"]


async def test_scripts_without_spaces_leave_the_box_sign_by_sign(modules: Visit) -> None:
    found = await typing(modules, ("type", "你好", 0))
    assert found["sent"] == [["type", 1, "你好"]]
    assert found["box"] == [""]


async def test_a_long_paste_is_cut_into_messages_and_no_sign_is_torn(modules: Visit) -> None:
    text = "🙂" * 5000 + " "
    found = await typing(modules, ("type", text, 0))
    parts = [part for _, _, part in found["sent"]]
    assert "".join(parts) == text
    assert all(len(part) <= 2048 for part in parts)


EAR = """
const ear = new m.EarPosition();
for (const [position, time] of g.told) ear.told(position, time);
return g.at.map((time) => ear.at(time, 1000));
"""


async def ear(visit: Visit, told: list[tuple[float, float]], at: list[float]) -> list[float]:
    found = await asked(visit, "ear_position.js", EAR, {"told": told, "at": at})
    return [float(each) for each in found]


async def test_the_position_at_the_ear_moves_evenly_between_what_was_told(modules: Visit) -> None:
    assert await ear(modules, [(0, 0), (100, 100)], [0, 25, 100]) == [0, 25, 100]


async def test_the_position_waits_where_the_line_has_stopped(modules: Visit) -> None:
    far = await ear(modules, [(0, 0), (100, 100)], [10_000])
    assert 100 < far[0] <= 300
    assert await ear(modules, [(100, 100), (100, 200)], [10_000]) == [100]


async def test_the_position_never_runs_backwards(modules: Visit) -> None:
    found = await ear(modules, [(0, 0), (200, 100), (150, 200), (300, 210)], list(range(0, 400, 5)))
    assert found == sorted(found)


CAPTIONS = """
const captions = new m.Captions();
for (const message of g.messages) captions.take(message, (time) => time);
captions.advance(g.at);
const { pieces, wordState } = await import('/static/caption_words.js');
return captions.entries.map((entry) => ({
  who: entry.who, heard: entry.heard, remaining: entry.remaining, lit: entry.lit,
  pieces: pieces(entry).map(([start, end, text]) => [text, wordState(entry, start)]),
}));
"""

SAID = {"type": "utterance", "id": 1, "who": "agent", "text": "Good morning dear Mrs. Müller"}
WORDS = {
    "type": "words",
    "id": 1,
    "rate_hz": 1000,
    "words": [[0, 4, 0, 300], [5, 12, 300, 800], [13, 17, 800, 1000], [18, 29, 1000, 1500]],
}


async def captions(
    visit: Visit, *messages: dict[str, Any], at: float = 0.0
) -> list[dict[str, Any]]:
    found = await asked(visit, "captions.js", CAPTIONS, {"messages": list(messages), "at": at})
    return [dict(each) for each in found]


def heard(position: int, time: float) -> dict[str, Any]:
    return {"type": "heard", "id": 1, "position": position, "time": time}


async def test_words_are_lit_when_their_sound_reaches_the_ear(modules: Visit) -> None:
    told = (SAID, WORDS, heard(0, 0), heard(900, 900))
    (early,) = await captions(modules, *told, at=100)
    (late,) = await captions(modules, *told, at=850)
    assert early["heard"] == "Good"
    assert late["heard"] == "Good morning dear"
    assert [state for _, state in late["pieces"]] == ["heard"] * 3 + ["waiting"] * 2


async def test_after_a_barge_in_what_was_not_heard_is_marked(modules: Visit) -> None:
    spoken = {
        "type": "spoken",
        "id": 1,
        "heard": "Good morning",
        "remaining": " dear Mrs. Müller",
        "interrupted": True,
    }
    (entry,) = await captions(modules, SAID, WORDS, heard(0, 0), spoken)
    assert entry["heard"] == "Good morning"
    assert entry["pieces"] == [
        ["Good ", "heard"],
        ["morning ", "heard"],
        ["dear ", "unheard"],
        ["Mrs. ", "unheard"],
        ["Müller", "unheard"],
    ]


async def test_a_word_that_was_cut_in_two_is_shown_in_two(modules: Visit) -> None:
    spoken = {
        "type": "spoken",
        "id": 1,
        "heard": "Good mor",
        "remaining": "ning",
        "interrupted": True,
    }
    said = {**SAID, "text": "Good morning"}
    (entry,) = await captions(modules, said, spoken)
    assert entry["pieces"] == [["Good ", "heard"], ["mor", "heard"], ["ning", "unheard"]]


async def test_signs_beyond_the_basic_plane_count_as_one(modules: Visit) -> None:
    said = {**SAID, "text": "🙂🙂 yes"}
    words = {**WORDS, "words": [[0, 2, 0, 100], [3, 6, 100, 200]]}
    (entry,) = await captions(modules, said, words, heard(0, 0), heard(100, 100), at=50)
    assert entry["heard"] == "🙂🙂"


async def test_a_turn_without_words_makes_no_caption(modules: Visit) -> None:
    turn = {"type": "turn", "text": " ", "barge_in": True, "began_ms": 0, "ended_ms": 1}
    assert await captions(modules, turn) == []
    assert len(await captions(modules, {**turn, "text": "Yes."})) == 1


async def test_captions_of_a_long_call_stay_bounded(modules: Visit) -> None:
    many = [{**SAID, "id": number} for number in range(1000)]
    assert len(await captions(modules, *many)) == 400


async def test_the_server_s_clock_is_taken_from_the_fastest_ping(modules: Visit) -> None:
    body = """
    const clock = new m.ServerClock();
    clock.answered(0, 1050, 200);
    clock.answered(1000, 2005, 1010);
    clock.answered(2000, 2500, 1990);
    return [clock.offsetMs, clock.uncertaintyMs, clock.here(3000)];
    """
    assert await asked(modules, "server_clock.js", body) == [1000, 5, 2000]


@pytest.mark.parametrize(
    ("text", "token"),
    [
        ("https://10.0.0.5:8443/#token=a-b_C", "a-b_C"),
        ("#token=a%2Bb", "a+b"),
        ("  a-b_C ", "a-b_C"),
        ("#token=%E0%A4%A", "%E0%A4%A"),
        ("not a token", None),
        ("https://10.0.0.5:8443/", None),
        ("", None),
    ],
)
async def test_a_token_is_found_in_a_link_or_alone(
    modules: Visit, text: str, token: str | None
) -> None:
    assert await asked(modules, "storage.js", "return m.tokenIn(g)", text) == token


async def test_a_call_makes_only_the_moves_of_its_table(modules: Visit) -> None:
    body = """
    const state = new m.CallState();
    const moves = ['prepare', 'offer', 'ringing', 'up', 'lost', 'up', 'end', 'prepare'];
    const seen = moves.map((move) => state.go(move));
    let refused = '';
    try { state.go('up'); } catch (error) { refused = error.message; }
    return [seen, refused];
    """
    seen, refused = await asked(modules, "call_state.js", body)
    assert seen == ["preparing", "connecting", "ringing", "up", "lost", "up", "ended", "preparing"]
    assert refused == "a call that is preparing cannot up"


async def test_the_jitter_buffer_is_that_of_the_last_moment_not_of_the_whole_call(
    modules: Visit,
) -> None:
    body = """
    const report = (delay, count, concealed) => new Map([['a', { type: 'inbound-rtp', kind: 'audio',
      jitterBufferDelay: delay, jitterBufferEmittedCount: count, concealedSamples: concealed,
      silentConcealedSamples: 100, totalSamplesReceived: 48000, totalSamplesDuration: 1 }]]);
    const stats = new m.LineStats();
    const first = stats.read(report(4800, 48000, 100));
    const second = stats.read(report(4800 + 960, 96000, 580));
    const none = stats.read(new Map());
    return [first.jitter_buffer_ms, second.jitter_buffer_ms, first.concealed,
      second.newly_concealed, second.rate_hz, none.jitter_buffer_ms];
    """
    assert await asked(modules, "line_stats.js", body) == [100, 20, 0, 480, 48000, 20]


async def test_a_recorded_voice_is_a_wav_file(modules: Visit) -> None:
    body = "return Array.from(new Uint8Array(m.wav(new Float32Array([0, 1, -1, 2]), 48000)))"
    data = bytes(await asked(modules, "capture.js", body))
    assert data[:4] == b"RIFF"
    assert data[8:16] == b"WAVEfmt "
    assert int.from_bytes(data[24:28], "little") == 48000
    samples = [int.from_bytes(data[i : i + 2], "little", signed=True) for i in range(44, 52, 2)]
    assert samples == [0, 32767, -32767, 32767]


async def test_the_end_of_the_call_before_does_not_end_the_next_one(modules: Visit) -> None:
    body = """
    const phone = new m.Softphone(document.createElement('audio'));
    const sent = [];
    phone.socket = { state: 'open', send: (type) => sent.push(type) > 0 };
    const ended = { type: 'state', state: 'ended', cause: 'the far end has hung up' };
    phone.state.name = 'up';
    phone.hangUp();
    const seen = [phone.state.name];
    phone.state.name = 'connecting';
    phone.told({ type: 'utterance', id: 1, who: 'typed', text: 'Of the call before.' });
    phone.told(ended);
    seen.push(phone.state.name, phone.captions.entries.length);
    phone.told({ type: 'answer', call_id: 'second', sdp: '', codec: 'opus' });
    phone.told(ended);
    seen.push(phone.state.name, phone.ending.cause);
    return [sent, seen];
    """
    sent, seen = await asked(modules, "softphone.js", body)
    assert sent == ["hangup"]
    assert seen == ["ended", "connecting", 0, "ended", "the far end has hung up"]


AT_THE_EAR = """
const phone = new m.Softphone(document.createElement("audio"));
phone.kind = g;
phone.socket = { clock: { here: (time) => time } };
phone.stats.latest = { ...phone.stats.latest, jitter_buffer_ms: 150, rtt_ms: 40 };
phone.told({ type: "utterance", id: 1, who: "agent", text: "Now" });
phone.told({ type: "words", id: 1, words: [[0, 3, 2400, 4800]], rate_hz: 24000 });
phone.told({ type: "heard", id: 1, position: 2400, time: 1000 });
return phone.captions.of(1).ear.points.at(-1).time - 1000;
"""


async def test_the_jitter_buffer_delays_captions_once_where_the_server_knows_of_it(
    modules: Visit,
) -> None:
    """Of a call of its own the page reports it, and the server tells what is at this ear."""
    assert await asked(modules, "softphone.js", AT_THE_EAR, "call") == 0
    assert await asked(modules, "softphone.js", AT_THE_EAR, "listen") == 170
    assert await asked(modules, "softphone.js", AT_THE_EAR, "dial") == 170
