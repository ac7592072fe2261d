"""A session under any order of events: client, engine, network and time."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_wire.endpoint import Violation
from qwen3tts_wire.errors import EngineFailed, ProtocolError
from qwen3tts_wire.formats import FORMATS, AudioFrame
from qwen3tts_wire.heard import Word
from qwen3tts_wire.messages import (
    MODES,
    AlignmentInfo,
    ContextCancelled,
    ContextDone,
    ErrorInfo,
)
from qwen3tts_wire.states import ContextState
from tests.engine.fake_engine import FakeEngine
from tests.server.driver import Driver, tone

# Named as often as it is to come up.
NAMES = (
    "open append append flush end report credit credit cancel "
    "produce produce produce finish finish fail read read_one time"
)
LIVE_NAMES = (
    "open append append append append append append flush end report cancel "
    "produce finish fail read read_one time take take dry dry give_up give_up"
)
LIVE_STEPS = st.lists(
    st.tuples(st.sampled_from(LIVE_NAMES.split(" ")), st.integers(0, 5)), min_size=20, max_size=50
).map(lambda steps: [("open", steps[0][1]), ("open", 2), *steps])
STEPS = st.lists(
    st.tuples(st.sampled_from(NAMES.split(" ")), st.integers(0, 5)), min_size=20, max_size=70
)
WORDS = ("Hello there. ", "and so it ", "goes on, ", "\ud83d", "\ude00 ", "**Yes!** ")


class Walk:
    """Takes random steps and watches what comes out."""

    def __init__(self, engine: FakeEngine | None = None) -> None:
        self.line = Driver(engine, ahead_ms=200)
        self.said: dict[int, str] = {}
        """What the engine has taken to say."""
        self.begun = 0
        """Requests whose first text was taken."""
        self.numbers: list[int] = []
        self.credit: dict[int, float] = {}
        self.text: dict[int, str] = {}

    def step(self, name: str, value: int) -> None:
        line = self.line
        if name == "open":
            form = FORMATS[value % len(FORMATS)]
            window = 20.0 + 100 * value
            mode = MODES[value % len(MODES)]
            no = line.client.send_open(format=form, window_ms=window, mode=mode).context_no
            self.said[no] = ""
            self.numbers.append(no)
            self.credit[no] = form.samples(window)
            self.text[no] = ""
        elif name == "read":
            line.read()
        elif name == "read_one":
            for data in line.session.data_to_send(line.now):
                line.client.receive_data(data)
            line.events += line.client.events_received()
            line.act(line.session.sent(line.now))
        elif name == "time":
            line.pass_time(0.1 * value)
        elif self.numbers:
            no = self.numbers[value % len(self.numbers)]
            if name in ("produce", "finish", "fail", "take", "dry", "give_up"):
                self.engine(name, no, value)
            else:
                self.client(name, no, value)
        line.write()
        self.read_texts()

    def read_texts(self) -> None:
        """What the engine has from the start of a request, it says."""
        for no, request in self.line.requests[self.begun :]:
            self.begun += 1
            self.said[no] += request.text

    def client(self, name: str, no: int, value: int) -> None:
        client = self.line.client
        try:
            if name == "append":
                self.text[no] += client.send_append(no, WORDS[value])
            elif name == "flush":
                client.send_flush(no)
            elif name == "end":
                self.text[no] += client.send_end(no)
            elif name == "report":
                client.send_report(no, value * 100)
            elif name == "credit":
                client.send_credit(no, 50.0 * value)
                self.credit[no] += 24 * 50 * value
            elif name == "cancel":
                client.send_cancel(no, value * 100)
        except ProtocolError:
            pass

    def engine(self, name: str, no: int, value: int) -> None:
        line = self.line
        request = line.speaking.get(no)
        if request is None or (name == "produce" and no in line.paused):
            return
        if name == "produce":
            assert request.offsets is not None
            word = Word(request.text, 0, 500, request.offsets[0], request.offsets[-1])
            line.produce(no, tone(500 * value), word)
        elif name == "take":
            if request.more is not None:
                self.said[no] += line.take(no)
        elif name == "finish":
            if request.more is not None:
                self.said[no] += line.take(no)
                if not request.more.ended:
                    return
            line.finish(no)
        elif name == "dry":
            if request.more is not None and request.more.close():
                self.said[no] += line.take(no)  # and is still to be made
        elif name == "give_up":
            if request.more is not None:
                request.more.close()
                line.finish(no)
        elif value == 0:
            line.fail(no, EngineFailed("broke"))

    def settle(self) -> None:
        """Let everything come to its end."""
        line = self.line
        for no in self.numbers:
            self.client("end", no, 0)
            if line.client.state(no) in (ContextState.OPEN, ContextState.ENDING):
                line.client.send_credit(no, 60_000.0)
                self.credit[no] += 24 * 60_000
        line.write()
        line.read()
        while line.speaking:
            for no in list(line.speaking):
                self.engine("finish", no, 0)
            self.read_texts()
            line.read()
        line.read()


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_whatever_happens_every_context_ends_once_and_rightly(steps: list[tuple[str, int]]) -> None:
    check(Walk(), steps)


@settings(max_examples=300, deadline=None)
@given(LIVE_STEPS)
def test_it_does_with_live_text_too_and_all_text_is_said_once(
    steps: list[tuple[str, int]],
) -> None:
    check(Walk(FakeEngine(live=True)), steps)


def check(walk: Walk, steps: list[tuple[str, int]]) -> None:
    for name, value in steps:
        walk.step(name, value)
    walk.settle()
    line = walk.line
    assert line.client.strays == 0
    assert line.session.backlog == 0
    over: dict[int, object] = {}
    position: dict[int, int] = dict.fromkeys(walk.numbers, 0)
    ids = {f"c{no}": no for no in walk.numbers}
    for event in line.events:
        assert not isinstance(event, Violation)
        no = getattr(event, "context_no", None) or ids.get(getattr(event, "context_id", None) or "")
        if no is None:
            continue
        if isinstance(event, (ContextDone, ContextCancelled, ErrorInfo)):
            if isinstance(event, ErrorInfo):
                assert (event.code, event.ends) == ("engine_failed", "context")
            assert no not in over or isinstance(over[no], ContextDone)
            over[no] = event
        else:
            assert no not in over
        if isinstance(event, AudioFrame):
            position[no] += len(event.data)
        elif isinstance(event, ContextDone):
            assert event.chars == len(walk.text[no])
        elif isinstance(event, ContextCancelled):
            assert event.text_heard + event.text_remaining == walk.text[no]
            assert event.sent <= event.generated
    assert over.keys() == set(walk.numbers)
    for no in walk.numbers:
        assert position[no] / 2 <= walk.credit[no]
    for no, end in over.items():
        if isinstance(end, ContextDone):
            letters = [each for each in walk.text[no] if each.isalpha()]
            assert [each for each in walk.said[no] if each.isalpha()] == letters


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(categories=None)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(["context_id", "context_no", "text", "played", "window_ms", "format"])
TYPES = st.sampled_from(
    ["context.open", "text.append", "text.end", "context.cancel", "playout.report", "ping", "x"]
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.binary(max_size=30)
        | st.text()
        | st.builds(
            lambda kind, fields: json.dumps({"context_id": "bad", **fields, "type": kind}),
            TYPES,
            st.dictionaries(FIELDS, JUNK, max_size=4),
        ),
        max_size=10,
    )
)
def test_garbage_is_answered_and_the_sentence_beside_it_is_spoken(junk: list[str | bytes]) -> None:
    line = Driver()
    no = line.open(context_id="undisturbed")
    line.say(no, "Hello there. ")
    for data in junk:
        line.act(line.session.receive(data, line.now))
        line.read()
    line.say(no, "Still there.", end=True)
    while no in line.speaking:
        line.speak(no)
    line.read()
    done = [each for each in line.events if isinstance(each, ContextDone)]
    assert [each.context_id for each in done if each.context_id == "undisturbed"]
    words = [
        e for e in line.events if isinstance(e, AlignmentInfo) and e.context_id == "undisturbed"
    ]
    assert words
