from __future__ import annotations

import threading

import pytest

from qwen3tts_engine.base import PcmChunk
from qwen3tts_engine.playout import PlayoutLead
from qwen3tts_engine.qwen3.engine.jobs import Job, JobState
from qwen3tts_engine.qwen3.model.config import Samples
from qwen3tts_text.growing import LiveText
from qwen3tts_wire.errors import BadText, EngineFailed, ServerBusy
from tests.qwen3.engine.worker_world import FRAME, PAD, TEXT_EOS, FakePostprocessor, World


def letters(text: str) -> list[int]:
    return [ord(letter) for letter in text]


def live(text: LiveText, more: str) -> None:
    assert text.push(more, range(len(more) + 1))


# --- frames become sound ---


def test_every_frame_becomes_sound_once_and_in_order() -> None:
    world = World()
    job, out = world.say(seed=1)
    assert world.run() is None
    assert out.frames == list(range(1, 11))
    assert (out.finished, out.error, out.end) == (True, None, "text_end")
    assert job.state is JobState.DONE
    assert world.worker.under_way == 0
    assert not world.runner.rows


def test_a_device_that_answers_late_changes_nothing() -> None:
    world = World()
    world.runner.quick = False
    _, out = world.say(seed=1)
    world.run()
    assert out.frames == list(range(1, 11))


def test_a_turn_launches_before_the_last_ones_codes_are_read() -> None:
    world = World()
    world.runner.quick = False
    read: list[int] = []
    world.runner.fails = lambda what, _: (
        read.append(len(world.runner.steps)) if what == "wait" else None
    )
    world.say(seed=1)
    world.run()
    # When the first codes are read, the second step has been launched.
    assert read[0] == 2


def test_the_first_sound_is_launched_with_the_first_step() -> None:
    world = World()
    world.say(seed=1)
    world.turn()
    assert world.runner.decodes == [[(1, 0, 1)]]


def test_no_row_ends_before_its_second_frame() -> None:
    world = World()
    world.runner.frames_of[1] = 0
    _, out = world.say(seed=1)
    world.run()
    assert out.frames == [1, 2]


@pytest.mark.parametrize("frames", range(12, 18))
def test_sound_behind_the_end_is_dropped_wherever_the_end_falls(frames: int) -> None:
    world = World()
    world.runner.quick = False
    world.runner.frames_of[1] = frames
    _, out = world.say(seed=1)
    world.run()
    assert out.frames == list(range(1, frames + 1))


def test_sound_that_the_guards_keep_is_not_given_out() -> None:
    world = World()

    class Quiet(FakePostprocessor):
        def process(self, job: Job, samples: Samples) -> tuple[PcmChunk | None, bool]:
            chunk, over = super().process(job, samples)
            return (chunk if job.decoded > 3 else None), over

    world.voicing = Quiet
    _, out = world.say(seed=1)
    world.run()
    assert out.frames == list(range(4, 11))


def test_many_share_the_slots_and_each_is_whole() -> None:
    world = World(slots=3)
    world.runner.frames_of = {seed: 5 + seed for seed in range(10)}
    said = [world.say(seed=seed)[1] for seed in range(10)]
    world.run()
    assert [out.frames for out in said] == [list(range(1, 6 + seed)) for seed in range(10)]
    assert max(map(len, world.runner.steps)) == 3


def test_a_full_house_refuses_with_a_retryable_error() -> None:
    world = World(slots=1, max_waiting=1)
    said = [world.say(seed=seed)[1] for seed in range(3)]
    world.run()
    assert [out.error is None for out in said] == [True, True, False]
    assert isinstance(said[2].error, ServerBusy)


def test_the_marks_tell_when_it_began() -> None:
    world = World()
    _, out = world.say(seed=1)
    world.run()
    assert out.chunks[-1].marks == {"slot": 100.0, "prefill": 100.0, "first_codes": 100.0}


# --- text that grows ---


def test_late_text_gives_the_row_what_early_text_gives_it() -> None:
    seen = []
    for parts in (["one two three"], ["one", " tw", "o three"], list("one two three")):
        world = World()
        more = LiveText()
        _, out = world.say(parts[0], seed=1, more=more)
        world.run()
        for part in parts[1:]:
            live(more, part)
            world.run()
        more.end()
        world.run()
        assert out.finished
        seen.append((world.runner.texts[1], out.frames))
    assert seen[0] == seen[1] == seen[2]
    # The first token is in the prompt; the others come one a frame, then the end, then padding.
    expected = [*letters("ne two three"), TEXT_EOS, PAD]
    assert seen[0][0][: len(expected)] == expected


def test_a_dry_row_waits_and_never_pads() -> None:
    world = World()
    more = LiveText()
    job, out = world.say("abc", seed=1, more=more)
    wake = world.run()
    # Of "abc" the last letter may still change: one token is in the prompt, one behind a frame.
    assert world.runner.texts[1] == letters("b")
    assert job.state is JobState.STARVED
    assert out.frames == [1]
    assert wake == world.now + 2.0


def test_it_ends_only_when_all_text_is_in() -> None:
    world = World()
    world.runner.frames_of[1] = 0
    more = LiveText()
    _, out = world.say("abcdef", seed=1, more=more)
    world.run()
    assert not out.finished
    more.end()
    world.run()
    # Six tokens and the end of the text are in; the frame after that may be the end.
    assert len(out.frames) == 6
    assert out.end == "text_end"


def test_text_that_stops_coming_ends_its_generation_and_what_comes_later_is_refused() -> None:
    world = World()
    more = LiveText()
    _, out = world.say("abc", seed=1, more=more)
    wake = world.run()
    assert wake is not None
    world.now = wake
    world.run()
    assert out.finished
    assert out.end == "dry"
    assert world.runner.texts[1][:3] == [*letters("bc"), TEXT_EOS]
    assert not more.push("d", (0, 1))


def test_text_that_comes_in_time_restarts_the_wait() -> None:
    world = World()
    more = LiveText()
    _, out = world.say("abc", seed=1, more=more)
    world.run()
    world.now += 1.9
    live(more, "de")
    wake = world.run()
    assert wake == world.now + 2.0
    assert not out.finished


def test_a_generation_that_never_gets_a_word_ends_dry_without_sound() -> None:
    world = World()
    more = LiveText()
    _, out = world.say("...", seed=1, more=more)
    wake = world.run()
    assert wake is not None
    world.now = wake
    world.run()
    assert (out.frames, out.end) == ([], "dry")


@pytest.mark.parametrize("text", ["", " ", "...", "?!"])
def test_text_with_nothing_to_say_ends_without_a_chunk(text: str) -> None:
    world = World()
    _, out = world.say(text, seed=1)
    world.run()
    assert (out.chunks, out.finished, out.error) == ([], True, None)


def test_text_that_outgrows_the_row_goes_on_in_another() -> None:
    world = World()
    more = LiveText()
    _, out = world.say("a" * 60, seed=1, more=more, most=50)
    world.run()
    assert more.closed
    assert out.end == "text_end"


def test_text_that_is_no_text_fails_its_generation_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    more = LiveText()
    job, out = world.say("ab", seed=1, more=more)
    _, other = world.say(seed=2)
    error = BadText("Half a surrogate pair.", remedy="Join it.")

    def refuse(_text: str) -> list[tuple[int, int]]:
        raise error

    monkeypatch.setattr(job.track._tokens, "push", refuse)
    live(more, "x")
    world.run()
    assert out.error is error
    assert other.end == "text_end"


# --- readers and listeners ---


def test_a_cancelled_row_is_in_no_further_step_and_its_slot_is_free() -> None:
    world = World(slots=2)
    world.runner.quick = False
    job, out = world.say(seed=1)
    _, other = world.say(seed=2)
    for _ in range(3):
        world.turn()
    before = len(world.runner.steps)
    chunks = len(out.chunks)
    world.worker.cancel(job)
    _, third = world.say(seed=3)
    world.run()
    assert all(1 not in seeds for seeds in world.runner.steps[before:])
    assert len(out.chunks) == chunks
    assert not out.finished
    assert other.frames == third.frames == list(range(1, 11))


def test_what_is_cancelled_while_it_waits_is_never_begun() -> None:
    world = World(slots=1)
    world.say(seed=1)
    job, _ = world.say(seed=2)
    world.turn()
    world.worker.cancel(job)
    world.worker.cancel(job)
    world.run()
    assert 2 not in world.runner.texts


def test_a_reader_who_stalls_is_given_a_bounded_amount_and_then_the_rest() -> None:
    world = World()
    world.runner.frames_of[1] = 100
    _, out = world.say(seed=1)
    out.read = 0
    assert world.run() is None
    assert 48_000 <= out.samples < 48_000 + 16 * FRAME
    _, other = world.say(seed=2)
    world.run()
    assert other.finished
    out.read = None
    world.run()
    assert out.frames == list(range(1, 101))


def test_a_row_whose_listener_has_enough_rests_until_he_needs_it() -> None:
    world = World(lead_ms=400.0)
    world.runner.frames_of[1] = 100
    lead = PlayoutLead()
    _, out = world.say(seed=1, lead=lead)
    sent = 0
    # Ten seconds, in which the listener hears all that he is sent.
    while world.now < 110.0:
        wake = world.run()
        assert lead.made_samples == out.samples
        if out.finished:
            break
        assert wake is not None
        assert len(world.runner.steps) <= (world.now - 100.0) / 0.08 + 6
        lead.sent(out.samples - sent, world.now)
        sent = out.samples
        world.now = max(wake, world.now + 0.001)
    assert out.frames == list(range(1, 101))


# --- guards ---


def test_a_row_that_runs_away_is_cut_at_its_cap() -> None:
    world = World()
    world.runner.frames_of[1] = 10_000

    class Capped(FakePostprocessor):
        cap = 12

    world.voicing = Capped
    _, out = world.say(seed=1)
    world.run()
    assert (out.frames, out.end) == (list(range(1, 13)), "frame_cap")


def test_a_row_whose_positions_are_used_up_ends() -> None:
    world = World()
    world.runner.frames_of[1] = 10_000
    _, out = world.say(seed=1)
    world.run()
    assert len(out.frames) == world.runner.positions - 5
    assert out.end == "frame_cap"


def test_the_end_of_speech_just_before_the_cap_is_the_end() -> None:
    world = World()
    world.runner.quick = False
    world.runner.frames_of[1] = 11

    class Capped(FakePostprocessor):
        cap = 12

    world.voicing = Capped
    _, out = world.say(seed=1)
    world.run()
    assert (out.frames, out.end) == (list(range(1, 12)), "text_end")


def test_silence_after_the_text_ends_the_row() -> None:
    world = World()
    world.runner.frames_of[1] = 10_000

    class Silent(FakePostprocessor):
        silence_after = 15

    world.voicing = Silent
    _, out = world.say(seed=1)
    world.run()
    assert out.end == "silence"
    assert len(out.frames) < 24


# --- the beginning of long prompts ---


def test_the_beginning_of_a_long_prompt_is_computed_once() -> None:
    world = World()
    for seed in (1, 2):
        world.say("abc", seed=seed, prefix=40)
        world.run()
    assert len(world.runner.prefixes) == 1
    # Each row got the kept beginning, and its own three positions.
    assert [len(prompt.text) for prompt in world.embedded] == [40, 3, 3]


def test_a_short_beginning_is_not_worth_keeping() -> None:
    world = World()
    world.say("abc", seed=1, prefix=8)
    world.run()
    assert world.runner.prefixes == []


# --- the thread ---


def test_work_for_the_idle_thread_waits_until_it_is_idle() -> None:
    world = World()
    done: list[int] = []
    _, out = world.say(seed=1)
    world.turn()
    future = world.worker.when_idle(lambda: done.append(len(out.frames)))
    broken = world.worker.when_idle(lambda: 1 // 0)  # type: ignore[arg-type]
    world.run()
    world.turn()
    assert done == [10]
    assert future.result(0) is None
    with pytest.raises(ZeroDivisionError):
        broken.result(0)


def test_work_for_a_thread_that_is_gone_fails() -> None:
    world = World()
    world.worker.close()
    never = world.worker.when_idle(lambda: None)
    world.worker.run()
    with pytest.raises(EngineFailed):
        never.result(0)
    with pytest.raises(EngineFailed):
        world.worker.when_idle(lambda: None).result(0)


def test_closing_ends_what_is_under_way_with_an_error() -> None:
    world = World()
    more = LiveText()
    _, out = world.say("abc", seed=1, more=more)
    thread = threading.Thread(target=world.worker.run)
    thread.start()
    world.worker.close()
    thread.join(10)
    assert not thread.is_alive()
    assert isinstance(out.error, EngineFailed)
    assert more.closed
    job, late = world.say(seed=2)
    assert isinstance(late.error, EngineFailed)
    world.worker.cancel(job)


def test_an_idle_thread_waits_for_an_event() -> None:
    world = World()
    turns = []
    turn = world.worker.turn
    done = threading.Event()

    def counted(now: float) -> float | None:
        wake = turn(now)
        turns.append(wake)
        if wake is None and len(turns) > 1:
            done.set()
        return wake

    world.worker.turn = counted  # type: ignore[method-assign]
    thread = threading.Thread(target=world.worker.run)
    thread.start()
    _, out = world.say(seed=1)
    assert done.wait(10)
    world.worker.close()
    thread.join(10)
    assert out.frames == list(range(1, 11))
    # One turn a frame and a few around: it does not spin.
    assert len(turns) < 60
