"""Writes down what the real host shows of a command while a model writes it.

    VENV_OF_THE_HOST/bin/python tests/plugin/capture_partials.py

Runs the host's own two parsers (``coreplugins/agent/command_parser.py`` in the loop of
``parse_cmd_stream``, and ``lib/xml_stream_events.py``) over the replies below, and writes
``partials_of_the_host.json`` beside this file. Needs only the host's package, no server.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OUTPUT = Path(__file__).with_name("partials_of_the_host.json")
LONG = " ".join(f"Sentence number {number} says nothing of note." for number in range(1, 31))


def speak(*texts: str, ascii_only: bool = True) -> str:
    """A reply as a model writes it that knows JSON."""
    return json.dumps([{"speak": {"text": text}} for text in texts], ensure_ascii=ascii_only)


def raw(text: str) -> str:
    return f'[{{"speak": {{"text": START_RAW\n{text}\nEND_RAW\n}}}}]'


# What it shows: (how the model writes it, characters per piece, the texts that it means).
JSON_REPLIES: dict[str, tuple[str, int, list[str]]] = {
    "one sentence, letter by letter": (speak("Hello, how are you?"), 1, ["Hello, how are you?"]),
    "emojis as halves": (speak("Hi 😀 there 👍🏽 you"), 1, ["Hi 😀 there 👍🏽 you"]),
    "half an emoji that stays alone": (
        '[{"speak": {"text": "Half \\ud83d of it"}}]',
        1,
        ["Half  of it"],
    ),
    "accents as escapes": (speak("Où est le café, señor?"), 1, ["Où est le café, señor?"]),
    "Chinese without spaces": (
        speak("你好。今天天气很好。", ascii_only=False),
        1,
        ["你好。今天天气很好。"],
    ),
    "quotation marks within": (speak('He said "no" and left.'), 1, ['He said "no" and left.']),
    "a quotation mark at the end, and another command": (
        speak('He said "no"', "Then he left."),
        1,
        ['He said "no"', "Then he left."],
    ),
    "a quotation mark at the end, on lines of its own": (
        json.dumps([{"speak": {"text": 'He said "no"'}}, {"speak": {"text": "So."}}], indent=2),
        1,
        ['He said "no"', "So."],
    ),
    "a quotation mark at the very end": (speak("So.", 'He said "no"'), 1, ["So.", 'He said "no"']),
    "a quotation mark at the very end, with spaces": (
        '[{"speak": {"text": "He said \\"no\\"" } } ]',
        3,
        ['He said "no"'],
    ),
    "nothing but an empty text": (speak(""), 1, [""]),
    "an empty text, and another command": (speak("", "Yes, I am."), 1, ["", "Yes, I am."]),
    "backslashes": (speak("It is in C:\\new\\table now"), 1, ["It is in C:\\new\\table now"]),
    "escaped line ends": (speak("One\ntwo\n\nthree four"), 1, ["One\ntwo\n\nthree four"]),
    "raw line ends": (
        '[{"speak": {"text": "One\ntwo\n\nthree four"}}]',
        1,
        ["One\ntwo\n\nthree four"],
    ),
    "raw line ends, and another command": (
        '[{"speak": {"text": "One\ntwo three"}}, {"speak": {"text": "Four five six"}}]',
        1,
        ["One\ntwo three", "Four five six"],
    ),
    "raw line ends, and a hangup": (
        '[{"speak": {"text": "One\ntwo three"}}, {"hangup": {}}]',
        3,
        ["One\ntwo three", ""],
    ),
    "a raw block": (
        raw('Hello "there",\nmy friend. {x}'),
        1,
        ['Hello "there",\nmy friend. {x}\n'],
    ),
    "a raw block in quotation marks": (
        '[{"speak": {"text": "START_RAW\\nHello there\\nmy friend.\\nEND_RAW"}}]',
        1,
        ["Hello there\nmy friend.\n"],
    ),
    "raw blocks in quotation marks, two commands": (
        '[{"speak": {"text": "START_RAW\\nOne two three\\nEND_RAW"}}, '
        '{"speak": {"text": "START_RAW\\nFour five\\nEND_RAW"}}]',
        1,
        ["One two three\n", "Four five\n"],
    ),
    "two commands and a hangup": (
        '[{"speak": {"text": "One two."}}, {"speak": {"text": "One two."}}, {"hangup": {}}]',
        2,
        ["One two.", "One two."],
    ),
    "a text alone": ('[{"speak": "Hi there you"}]', 1, ["Hi there you"]),
    "a list": ('[{"speak": ["Hi there", "en"]}]', 1, ["Hi there"]),
    "the voice first": (
        '[{"speak": {"voice_id": "en", "text": "Hi there you"}}]',
        1,
        ["Hi there you"],
    ),
    "the voice last": (
        '[{"speak": {"text": "Say \\"no\\"", "voice_id": "en"}}]',
        1,
        ['Say "no"'],
    ),
    "no array around it": ('{"speak": {"text": "Hi there you"}}', 1, ["Hi there you"]),
    "brackets and braces": (speak("See [1], {x} and ] }."), 1, ["See [1], {x} and ] }."]),
    "code": (speak("Run ```py\nx = 1\n``` now"), 1, ["Run ```py\nx = 1\n``` now"]),
    "a number": ('[{"speak": {"text": 12345}}]', 1, ["12345"]),
    "nothing": ('[{"speak": {"text": null}}]', 1, [""]),
    "a long text in large pieces": (speak(LONG), 150, [LONG]),
}
XML_REPLIES: dict[str, tuple[str, int, list[str]]] = {
    "plain speech": ("Hello there, how are you?", 3, ["Hello there, how are you?"]),
    "a key in between": (
        'One moment. <send_dtmf digits="1"/> Now we wait 😀 here.',
        4,
        ["One moment. ", " Now we wait 😀 here."],
    ),
    "tags that are none": ("If a < b, <b>then</b> c <3 d", 3, ["If a < b, <b>then</b> c <3 d"]),
    "spaces around a hangup": ("\n\n Goodbye then. \n<hangup/>\n", 5, ["\n\n Goodbye then. \n"]),
    "a body in JSON": (
        'Wait. <tool name="look_up">{"id": "42"}</tool>Found it.',
        64,
        ["Wait. ", "Found it."],
    ),
}


class Host:
    """The host's two parsers."""

    def __init__(self) -> None:
        package = importlib.util.find_spec("mindroot")
        if package is None or not package.submodule_search_locations:
            sys.exit("mindroot is not installed here (pip install mindroot==15.3.0)")
        root = Path(next(iter(package.submodule_search_locations)))
        sys.path.insert(0, str(root))
        path = root / "coreplugins" / "agent" / "command_parser.py"
        spec = importlib.util.spec_from_file_location("command_parser", path)
        assert spec is not None
        assert spec.loader is not None
        self._parser = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self._parser)
        self._xml = importlib.import_module("lib.xml_stream_events")

    def json_events(self, pieces: Iterator[str]) -> Iterator[tuple[str, int, str, Any]]:
        """What the loop of ``parse_cmd_stream`` does, without its throttle."""
        buffer, done = "", 0
        for piece in pieces:
            buffer += piece
            if buffer[0] == "{":
                buffer = "[" + buffer
            commands, partial = self._parser.parse_streaming_commands(buffer)
            if not isinstance(commands, list):
                continue
            for number in range(done, len(commands)):
                if isinstance(commands[number], dict):
                    name = next(iter(commands[number]))
                    yield "partial", number, name, commands[number][name]
                    yield "command", number, name, commands[number][name]
                    done = len(commands)
            if len(commands) <= done and isinstance(partial, dict) and partial:
                name = next(iter(partial))
                yield "partial", done, name, partial[name]

    def xml_events(self, pieces: Iterator[str]) -> Iterator[tuple[str, int, str, Any]]:
        stream = self._xml.XmlEventStream(emit_partial_on_chars=8)
        events = [event for piece in pieces for event in stream.feed(piece)] + stream.finish()
        number = 0
        for event in events:
            if event["kind"] == "speak_partial":
                yield "partial", number, "speak", {"text": event["text"]}
                continue
            final = event["kind"] == "speak_final"
            name = "speak" if final else event["name"]
            params = {"text": event["text"]} if final else event["props"]
            yield "partial", number, name, params
            yield "command", number, name, params
            number += 1


def main() -> None:
    host = Host()
    cases = []
    for mode, replies in (("json", JSON_REPLIES), ("xml", XML_REPLIES)):
        for shows, (reply, size, means) in replies.items():
            pieces = (reply[at : at + size] for at in range(0, len(reply), size))
            events = host.json_events(pieces) if mode == "json" else host.xml_events(pieces)
            told: list[list[Any]] = []
            for event in events:
                if not told or list(event) != told[-1]:
                    told.append(list(event))
            cases.append({"shows": shows, "mode": mode, "means": means, "events": told})
    lines = ",\n".join(json.dumps(case) for case in cases)
    version = importlib.metadata.version("mindroot")
    OUTPUT.write_text(f'{{"host": "mindroot {version}",\n"cases": [\n{lines}\n]}}\n')
    print(f"{len(cases)} replies -> {OUTPUT.name}")


if __name__ == "__main__":
    main()
