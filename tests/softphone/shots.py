"""Pictures of the softphone's page, for documents and for looking at it.

``python -m tests.softphone.shots FOLDER [light-1280 …]``: the page before a call, in a call, after
a barge-in and with a notice; light and dark, 390 and 1280 wide, or only those named.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path
from typing import Literal

import numpy as np

from tests.e2e.agent_parties import spoken
from tests.softphone.browser import Chromium, running_chromium
from tests.softphone.served import Person, at_the_page, served

SENTENCE = "Good morning, this is the clinic. How can I help you?"
STORY = "We are open from eight to five, Monday to Friday, and on Saturday from nine to noon. " * 3
CUT_IN_S = 14
"""When the caller speaks, after the call: in the story, also on a slow machine."""
WIDTHS = {390: 844, 1280: 860}
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


async def picture(person: Person, path: Path) -> None:
    """The whole page as it stands."""
    await person.page.screenshot(path=path, full_page=True)


async def shots(
    chromium: Chromium, folder: Path, theme: Literal["light", "dark"], width: int
) -> None:
    """All pictures of one theme and width."""
    name = f"{theme}-{width}"
    size = {"theme": theme, "width": width, "height": WIDTHS[width]}
    cut_in = await spoken("Excuse me, what about Sunday?")
    chromium.says(np.concatenate([np.zeros(8000 * CUT_IN_S, np.int16), cut_in]), 8000)
    async with served() as here, at_the_page(chromium, here.url, **size) as person:
        await person.ready()
        await picture(person, folder / f"softphone-ready-{name}.png")
        await person.call()
        await person.put(SENTENCE)
        await person.visit.sound(1.2)
        await picture(person, folder / f"softphone-call-{name}.png")
        await person.spoken()
        await person.put(STORY)
        await person.spoken(2)
        await picture(person, folder / f"softphone-barge-in-{name}.png")
        await person.hang_up()
    async with (
        served() as here,
        at_the_page(chromium, here.url, microphone="refused", **size) as person,
    ):
        await person.ready()
        await person.button("Call")
        await person.notice("microphone_refused")
        await picture(person, folder / f"softphone-refused-{name}.png")
        await person.is_("up")
        await person.hang_up()


async def main() -> None:
    """Make them."""
    parser = argparse.ArgumentParser(prog="tests.softphone.shots", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("only", nargs="*")
    args = parser.parse_args()
    folder: Path = args.folder
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        async with running_chromium(Path(place)) as chromium:
            for theme in THEMES:
                for width in WIDTHS:
                    if not args.only or f"{theme}-{width}" in args.only:
                        await shots(chromium, folder, theme, width)


if __name__ == "__main__":
    asyncio.run(main())
