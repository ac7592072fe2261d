from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_agent.chat.messages import ChatMessage, ToolCall
from qwen3tts_agent.conversation import CALL_BEGINS, RUNNING, History


def shown(history: History, most_chars: int | None = None) -> list[tuple[str, str]]:
    return [(each.role, each.content) for each in history.messages(most_chars)]


def test_a_reply_is_what_was_written_until_it_is_known_what_was_heard() -> None:
    history = History("Be brief.")
    history.caller("Hello?")
    reply = history.ours("Good morning, how are you?")
    assert shown(history)[-1] == ("assistant", "Good morning, how are you?")
    reply.heard = "Good morning,"
    assert shown(history) == [
        ("system", "Be brief."),
        ("user", "Hello?"),
        ("assistant", "Good morning,"),
    ]
    assert reply.unsaid == " how are you?"


def test_what_follows_without_an_answer_is_one_message() -> None:
    history = History()
    history.caller("I want")
    history.ours("Let").heard = ""
    history.caller("two pizzas.")
    assert shown(history) == [("user", "I want two pizzas.")]
    history.ours("One moment.").heard = "One moment."
    history.ours("Which ones?").heard = "Which ones?"
    assert shown(history)[1:] == [("assistant", "One moment. Which ones?")]


def test_a_conversation_that_begins_with_us_begins_with_the_call_for_the_model() -> None:
    history = History("S")
    history.ours("Hello, this is the shop.")
    assert shown(history)[1:] == [
        ("user", CALL_BEGINS),
        ("assistant", "Hello, this is the shop."),
    ]


def test_each_use_of_a_tool_has_a_result_also_while_it_runs() -> None:
    history = History()
    history.caller("When?")
    entry = history.ours("One moment.")
    entry.calls = (ToolCall("a", "hours", "{}"), ToolCall("b", "days", "{}"))
    entry.results["b"] = "Monday"
    messages = history.messages()
    assert [(m.role, m.content, m.tool_call_id) for m in messages[1:]] == [
        ("assistant", "One moment.", ""),
        ("tool", RUNNING, "a"),
        ("tool", "Monday", "b"),
    ]
    entry.results["a"] = "9 to 17"
    history.ours("From nine.")
    history.caller("Thanks.")
    assert [m.role for m in history.messages()] == [
        *("user", "assistant", "tool", "tool", "assistant", "user")
    ]


def test_a_filler_before_a_use_of_a_tool_stands_in_the_same_message() -> None:
    history = History()
    history.caller("When?")
    history.ours("One moment.").heard = "One moment."
    entry = history.ours()
    entry.heard, entry.calls = "", (ToolCall("a", "hours", "{}"),)
    assert [(m.role, m.content, len(m.tool_calls)) for m in history.messages()] == [
        ("user", "When?", 0),
        ("assistant", "One moment.", 1),
        ("tool", RUNNING, 0),
    ]


def test_the_oldest_are_left_out_of_what_is_too_long_and_the_last_question_never() -> None:
    history = History("S")
    for number in range(20):
        history.caller(f"question {number} " + "x" * 80)
        history.ours(f"answer {number} " + "y" * 80).heard = f"answer {number} " + "y" * 80
    history.caller("z" * 5000)
    found = shown(history, 1000)
    assert found[0] == ("system", "S")
    assert found[-1] == ("user", "z" * 5000)
    assert history.left_out(1000) == 40
    assert len(history.entries) == 41, "they are still there"
    assert history.left_out(6000) < 40


def test_what_the_caller_heard_of_us_is_in_one_text() -> None:
    history = History()
    history.ours("Hello.").heard = "Hello."
    history.caller("Hi.")
    history.ours("How are you?").heard = "How"
    history.ours("not yet")
    assert history.heard == "Hello. How"


def test_a_message_is_written_as_endpoints_take_it() -> None:
    call = ToolCall("a", "hours", '{"day": "Mo"}')
    assert ChatMessage("assistant", "", (call,)).to_json() == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "a",
                "type": "function",
                "function": {"name": "hours", "arguments": '{"day": "Mo"}'},
            }
        ],
    }
    assert ChatMessage("tool", "9", tool_call_id="a").to_json() == {
        "role": "tool",
        "content": "9",
        "tool_call_id": "a",
    }
    assert "hours" not in repr(ChatMessage("user", "my secret hours"))


steps = st.lists(
    st.tuples(
        st.sampled_from(["caller", "ours", "tools"]), st.text("ab ", max_size=4), st.booleans()
    ),
    max_size=12,
)


@given(steps, st.none() | st.integers(0, 40))
def test_what_is_sent_alternates_and_every_tool_has_its_result(
    script: list[tuple[str, str, bool]], most_chars: int | None
) -> None:
    history = History("S")
    for number, (kind, text, settled) in enumerate(script):
        if kind == "caller":
            history.caller(text)
            continue
        entry = history.ours(text)
        if settled:
            entry.heard = text[:2]
        if kind == "tools":
            entry.calls = (ToolCall(f"c{number}", "t", "{}"),)
    messages = history.messages(most_chars)
    roles = [message.role for message in messages if message.role != "tool"]
    for before, after in pairwise(messages):
        if before.role == after.role:
            assert before.role == "tool" or before.tool_calls
        if after.role == "tool":
            assert before.role == "tool" or before.tool_calls
    assert roles[:1] == ["system"]
    assert roles[1:2] in ([], ["user"])
