from __future__ import annotations

import asyncio

import pytest

from qwen3tts_agent.recognition.turns import (
    TurnRecognition,
    TurnRecognitionOptions,
    joined_transcripts,
)
from qwen3tts_phone.detection.recogniser import (
    RecogniserBusy,
    RecognitionFailed,
    RecognitionTimeout,
    Samples,
    Transcript,
)
from tests.agent.recognition.sounds import FRAME, RATE, Talk, quiet, tone
from tests.fakes import settle


@pytest.mark.parametrize(
    ("pieces", "whole"),
    [
        ([], ""),
        (["one", "two"], "one two"),
        ([" one ", "", "two"], "one two"),
        (["你好", "世界"], "你好世界"),
        (["สวัสดี", "ครับ"], "สวัสดีครับ"),
        (["감사", "합니다"], "감사 합니다"),
    ],
)
def test_pieces_are_joined_as_their_script_does(pieces: list[str], whole: str) -> None:
    assert joined_transcripts([Transcript(piece) for piece in pieces]).text == whole


def test_the_language_is_that_of_most_of_it_and_the_confidence_that_of_the_worst() -> None:
    parts = [Transcript("oui", "fr", 0.9), Transcript("", "", 0.0), Transcript("a b c", "en", 0.4)]
    assert joined_transcripts(parts) == Transcript("oui a b c", "en", 0.4)


def test_a_confidence_is_told_only_if_every_part_has_one() -> None:
    assert (
        joined_transcripts([Transcript("a", "en", 0.9), Transcript("b", "en")]).confidence is None
    )


class Work:
    """Recogniser that answers on command; the text is the length of the audio, in frames."""

    def __init__(self) -> None:
        self.asked: list[Samples] = []
        self.answers: list[asyncio.Future[Transcript]] = []
        self.cancelled = 0

    async def __call__(self, samples: Samples) -> Transcript:
        self.asked.append(samples)
        answer: asyncio.Future[Transcript] = asyncio.get_running_loop().create_future()
        self.answers.append(answer)
        try:
            return await answer
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    def answer(self, text: str, number: int = -1) -> None:
        self.answers[number].set_result(Transcript(text, "en"))


def rules(**changes: object) -> TurnRecognitionOptions:
    return TurnRecognitionOptions(RATE, **changes)  # type: ignore[arg-type]


async def test_work_begins_at_the_pause_and_is_used_when_the_turn_ends_there() -> None:
    work = Work()
    heard: list[str] = []
    recognition = TurnRecognition(work, rules(), lambda partial: heard.append(partial.text))
    talk = Talk(recognition)
    last = talk.turn(tone(1.0))
    recognition.pause(last)
    await settle()
    assert len(work.asked) == 1
    work.answer("hello")
    await settle()
    assert heard == ["hello"]
    talk.say(quiet(0.3))
    assert (await recognition.end_turn(last)).text == "hello"
    assert len(work.asked) == 1


async def test_a_turn_that_goes_on_after_a_pause_is_heard_whole() -> None:
    work = Work()
    heard: list[str] = []
    recognition = TurnRecognition(work, rules(), lambda partial: heard.append(partial.text))
    talk = Talk(recognition)
    recognition.pause(talk.turn(tone(1.0)))
    await settle()
    recognition.resume()
    await settle()
    assert work.cancelled == 1
    talk.say(tone(0.5))
    text = asyncio.ensure_future(recognition.end_turn(talk.at))
    await settle()
    work.answer("all of it")
    assert (await text).text == "all of it"
    assert len(work.asked[1]) > len(work.asked[0]) + 0.4 * RATE
    assert heard == []


async def test_the_work_has_the_turn_with_a_little_before_and_after() -> None:
    work = Work()
    recognition = TurnRecognition(work, rules(early=False))
    last = Talk(recognition).turn(tone(1.0), pause_s=0.8)
    recognition.pause(last)
    await settle()
    assert not work.asked
    text = asyncio.ensure_future(recognition.end_turn(last))
    await settle()
    work.answer("x")
    await text
    assert len(work.asked[0]) == pytest.approx(1.6 * RATE, abs=FRAME)


async def test_the_next_turn_may_begin_while_one_is_waited_for() -> None:
    work = Work()
    recognition = TurnRecognition(work, rules())
    talk = Talk(recognition)
    first = recognition.end_turn(talk.turn(tone(1.0)))  # over from here on, awaited or not
    second_last = talk.turn(tone(0.5))
    texts = asyncio.gather(first, recognition.end_turn(second_last))
    await settle()
    work.answer("one", 0)
    work.answer("two", 1)
    assert [each.text for each in await texts] == ["one", "two"]


async def test_a_turn_longer_than_a_piece_is_written_down_while_it_is_spoken() -> None:
    work = Work()
    heard: list[str] = []
    recognition = TurnRecognition(
        work, rules(piece_s=2.0), lambda partial: heard.append(partial.text)
    )
    last = Talk(recognition).turn(tone(5.0), pause_s=0.2)
    await settle()
    assert len(work.asked) == 2
    work.answer("one", 0)
    await settle()
    work.answer("two", 1)
    await settle()
    assert heard == ["one two"]
    text = asyncio.ensure_future(recognition.end_turn(last))
    await settle()
    work.answer("three", 2)
    assert (await text).text == "one two three"
    assert sum(map(len, work.asked)) == pytest.approx(5.5 * RATE, abs=2 * FRAME)


async def test_a_piece_that_fails_is_recognised_a_second_time_for_its_audio_is_not_kept() -> None:
    work = Work()
    recognition = TurnRecognition(work, rules(piece_s=2.0))
    last = Talk(recognition).turn(tone(2.5), pause_s=0.2)
    await settle()
    work.answers[0].set_exception(RecognitionFailed("It broke."))
    await settle()
    assert [len(each) for each in work.asked] == [len(work.asked[0])] * 2
    text = asyncio.ensure_future(recognition.end_turn(last))
    await settle()
    work.answer("one", 1)
    await settle()
    work.answer("two", 2)
    assert (await text).text == "one two"
    # Twice is enough.
    last = Talk(recognition, 200.0).turn(tone(2.5), pause_s=0.2)
    for number in (3, 4):
        await settle()
        work.answers[number].set_exception(RecognitionFailed("It broke."))
    with pytest.raises(RecognitionFailed):
        await recognition.end_turn(last)


async def test_a_turn_that_never_began_has_no_words() -> None:
    recognition = TurnRecognition(Work(), rules())
    assert await recognition.end_turn(1.0) == Transcript("")


async def test_what_failed_at_the_pause_is_tried_again_when_the_turn_ends() -> None:
    work = Work()
    recognition = TurnRecognition(work, rules())
    last = Talk(recognition).turn(tone(1.0))
    recognition.pause(last)
    await settle()
    work.answers[0].set_exception(RecognitionFailed("It broke."))
    text = asyncio.ensure_future(recognition.end_turn(last))
    await settle()
    work.answer("again")
    assert (await text).text == "again"


async def test_an_answer_that_does_not_come_costs_the_turn() -> None:
    work = Work()
    recognition = TurnRecognition(work, rules(timeout_s=0.01))
    last = Talk(recognition).turn(tone(1.0))
    with pytest.raises(RecognitionTimeout, match=r"within 0\.01 s") as caught:
        await recognition.end_turn(last)
    assert caught.value.remedy
    await settle()
    assert work.cancelled == 1


async def test_nobody_works_on_a_turn_that_is_not_waited_for_any_more() -> None:
    work = Work()
    recognition = TurnRecognition(work, rules())
    text = asyncio.ensure_future(recognition.end_turn(Talk(recognition).turn(tone(1.0))))
    await settle()
    text.cancel()
    await settle()
    assert work.cancelled == 1


async def test_a_turn_that_begins_anew_gives_the_last_one_up() -> None:
    work = Work()
    recognition = TurnRecognition(work, rules())
    talk = Talk(recognition)
    recognition.pause(talk.turn(tone(1.0)))
    await settle()
    talk.turn(tone(1.0))
    await settle()
    assert work.cancelled == 1


async def test_a_noise_that_began_a_turn_is_dropped() -> None:
    work = Work()
    recognition = TurnRecognition(work, rules(piece_s=2.0))
    recognition.drop_turn()
    talk = Talk(recognition)
    recognition.pause(talk.turn(tone(1.0)))
    await settle()
    recognition.drop_turn()
    await settle()
    assert work.cancelled == 1
    talk.say(tone(5.0))
    await settle()
    assert len(work.asked) == 1
    assert await recognition.end_turn(talk.at) == Transcript("")


async def test_the_end_of_the_call_is_a_failure_for_who_still_waits() -> None:
    work = Work()
    recognition = TurnRecognition(work, rules())
    talk = Talk(recognition)
    text = asyncio.ensure_future(recognition.end_turn(talk.turn(tone(1.0))))
    await settle()
    await recognition.close()
    with pytest.raises(RecognitionFailed, match="over before"):
        await text
    assert work.cancelled == 1
    last = talk.turn(tone(1.0))
    with pytest.raises(RecognitionFailed, match="over before"):
        await recognition.end_turn(last)


def ahead(work: Work, spare: Work, heard: list[str]) -> tuple[TurnRecognition, Talk]:
    recognition = TurnRecognition(
        work, rules(every_s=1.0), lambda partial: heard.append(partial.text), spare
    )
    return recognition, Talk(recognition)


async def begun(recognition: TurnRecognition, talk: Talk, seconds: float) -> None:
    """Speak a turn, with a step of the event loop after each frame."""
    talk.say(quiet(0.5))
    recognition.begin_turn(talk.at)
    await said(talk, tone(seconds))


async def said(talk: Talk, samples: Samples) -> None:
    for start in range(0, len(samples), FRAME):
        talk.say(samples[start : start + FRAME])
        await asyncio.sleep(0)


async def test_a_turn_is_recognised_every_second_while_it_is_spoken() -> None:
    work, spare, heard = Work(), Work(), list[str]()
    recognition, talk = ahead(work, spare, heard)
    await begun(recognition, talk, 1.2)
    spare.answer("one")
    await said(talk, tone(1.0))
    spare.answer("one two")
    await settle()
    assert heard == ["one", "one two"]
    assert len(spare.asked[1]) == pytest.approx(len(spare.asked[0]) + RATE, abs=12 * FRAME)
    assert not work.asked


async def test_what_was_recognised_in_a_short_silence_is_the_turns_text_if_nothing_follows() -> (
    None
):
    work, spare, heard = Work(), Work(), list[str]()
    recognition, talk = ahead(work, spare, heard)
    await begun(recognition, talk, 0.5)
    last = talk.at
    await said(talk, quiet(0.12))
    assert len(spare.asked) == 1
    await said(talk, quiet(0.1))
    recognition.pause(last)
    spare.answer("all of it")
    await settle()
    assert (await recognition.end_turn(last)).text == "all of it"
    assert heard == ["all of it"]
    assert not work.asked
    assert len(spare.asked) == 1


async def test_a_partial_that_was_complete_before_the_pause_is_reported_with_it_again() -> None:
    work, spare, heard = Work(), Work(), list[str]()
    recognition, talk = ahead(work, spare, heard)
    await begun(recognition, talk, 0.5)
    last = talk.at
    await said(talk, quiet(0.12))
    spare.answer("all of it")
    await settle()
    assert heard == ["all of it"]
    recognition.pause(last)
    await settle()
    assert heard == ["all of it", "all of it"]


async def test_a_turn_that_went_on_after_a_short_silence_is_recognised_whole() -> None:
    work, spare, heard = Work(), Work(), list[str]()
    recognition, talk = ahead(work, spare, heard)
    await begun(recognition, talk, 0.5)
    await said(talk, quiet(0.12))
    await said(talk, tone(0.1))  # less than makes another pass
    last = talk.at
    await said(talk, quiet(0.2))
    spare.answer("half")
    recognition.pause(last)
    await settle()
    work.answer("all of it")
    assert (await recognition.end_turn(last)).text == "all of it"
    assert len(work.asked[0]) > len(spare.asked[0])


async def test_a_partial_that_made_room_is_replaced_by_the_turns_own_work() -> None:
    work, spare, heard = Work(), Work(), list[str]()
    recognition, talk = ahead(work, spare, heard)
    await begun(recognition, talk, 0.5)
    last = talk.at
    await said(talk, quiet(0.1))
    recognition.pause(last)
    spare.answers[0].set_exception(RecogniserBusy("other work"))
    text = asyncio.ensure_future(recognition.end_turn(last))
    await settle()
    work.answer("all of it")
    assert (await text).text == "all of it"
    assert heard == []


async def test_partials_take_half_of_the_time_at_most() -> None:
    work, spare, heard = Work(), Work(), list[str]()
    recognition, talk = ahead(work, spare, heard)
    await begun(recognition, talk, 1.0)
    await said(talk, tone(1.5))  # the duration of the first
    spare.answer("slow")
    await said(talk, tone(1.4))
    assert len(spare.asked) == 1
    await said(talk, tone(0.6))
    assert len(spare.asked) == 2
