"""Functions that MindRoot finds: a command, a service, a pipe and hooks; `plugin` does the work.

The host registers functions under the folder name of their file, so all stand here; ``lib`` is the
host's own package, so nothing else imports it.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from lib.chatcontext import get_context
from lib.pipelines.pipe import pipe, pipeline_manager
from lib.providers.commands import command, command_manager
from lib.providers.hooks import hook
from lib.providers.services import service, service_manager
from lib.route_decorators import requires_role

from .host import Host
from .plugin import Plugin
from .stream import TtsStream

plugin = Plugin(Host(service_manager, command_manager))


@command()
async def speak(
    text: Any = "", voice_id: Any = None, context: Any = None, **kwargs: Any
) -> str | None:
    """Speak to the user. The words are heard while you write them.

    Write plain sentences as they should be heard: no markup, no lists, numbers as one says them.
    Say one thing at a time; the user may interrupt.

    Example:

    [
        { "speak": { "text": "Good morning! How can I help you?" } }
    ]
    """
    return await plugin.speak(text, voice_id, context, kwargs)


@service()
def stream_tts(
    text: Any = "",
    voice_id: Any = None,
    model_id: Any = None,
    output_format: str = "ulaw_8000",
    context: Any = None,
    **kwargs: Any,
) -> TtsStream:
    """Sound for a text, in chunks of bytes as they come.

    ``async for chunk in await service_manager.stream_tts(text=..., context=context)``, or without
    the await where the function itself is called. ``output_format``: ``ulaw_8000`` (160 bytes a
    chunk, 20 ms), ``alaw_8000``, ``pcm_8000``, ``pcm_16000``, ``pcm_24000``. ``model_id`` is taken
    and not used: the server has one model.
    """
    return plugin.stream(text, voice_id, output_format, context)


@service()
async def qwen3tts_heard(context: Any = None) -> dict[str, Any] | None:
    """Return the text heard and not heard of the last turn, to the word."""
    return plugin.heard(context)


@pipe(name="partial_command", priority=10)
async def partial_command(data: dict[str, Any], context: Any = None) -> dict[str, Any]:
    """Take a command's text while the model writes it."""
    await plugin.partial(data, context)
    return data


@hook()
async def on_interrupt(context: Any = None) -> None:
    """The host cancels what is being said."""
    await plugin.interrupt(context)


@hook()
async def user_utterance_complete(*args: Any, context: Any = None, **kwargs: Any) -> None:
    """The caller has said something: the agent will answer."""
    plugin.expect(context)


@service()
async def qwen3tts_caller_said(text: Any = "", context: Any = None) -> bool:
    """Take recognised text of a caller of our own calls.

    Stops the speech and gives the agent its turn; False without a call.
    """
    desk = plugin.desk
    return desk is not None and await desk.caller_said(text, context)


async def call(destination: Any = "", context: Any = None, **kwargs: Any) -> str | None:
    """Call somebody on the telephone, and wait until they answer (at most two minutes).

    `destination` is a number, or an address as sip:USER@HOST. Put what you want to say right behind
    it in the same list: it is heard once they have answered. If they do not, you are told why.

    Example:

    [
        { "call": { "destination": "+4930123456" } },
        { "speak": { "text": "Good morning, this is the pharmacy." } }
    ]
    """
    return await plugin.at_desk("call", destination, context)


async def hangup(context: Any = None, **kwargs: Any) -> str | None:
    """Hang up, after what you have said was heard. Say goodbye first.

    Example:

    [
        { "speak": { "text": "Goodbye!" } },
        { "hangup": {} }
    ]
    """
    return await plugin.at_desk("hangup", None, context)


async def send_dtmf(digits: Any = "", context: Any = None, **kwargs: Any) -> str | None:
    """Press keys on the telephone, for menus and extensions: 0 to 9, * and #.

    Example:

    [
        { "send_dtmf": { "digits": "12#" } }
    ]
    """
    return await plugin.at_desk("send_dtmf", digits, context)


def _cut_in_mid_command(message: dict[str, Any]) -> bool:
    """Return whether the host recorded a command whose text it had not read to its end.

    It then writes the command as Python shows it with a remark behind, which is not JSON.
    """
    content = message.get("content")
    if isinstance(content, list) and content and isinstance(content[-1], dict):
        content = content[-1].get("text")
    return isinstance(content, str) and content.rstrip().endswith("(Interrupted)")


class Sessions:
    """The host's chat sessions as `calls.options.CallHost` uses them."""

    async def init_chat_session(self, user: str, agent: str, log_id: str) -> Any:
        await service_manager.init_chat_session(
            user=user, agent_name=agent, log_id=log_id, context=None
        )
        return await get_context(log_id, user)

    async def send_message_to_agent(self, log_id: str, message: str, context: Any) -> None:
        await service_manager.send_message_to_agent(
            session_id=log_id, message=message, user={"username": context.username}, context=context
        )

    async def cancel_and_wait(self, log_id: str, context: Any) -> None:
        await service_manager.cancel_and_wait(
            session_id=log_id, user=context.username, context=context
        )

    async def backend_user_message(self, message: str, context: Any) -> None:
        await service_manager.backend_user_message(message=message, context=context)

    async def interrupt(self, log_id: str, context: Any) -> int | None:
        return plugin.cut_short(context)

    def hold(self, context: Any, *, cut_in: bool) -> None:
        plugin.hold(context, cut_in=cut_in)

    def go_on(self, context: Any) -> None:
        plugin.go_on(context)

    def heard_text(self, context: object) -> str:
        return plugin.heard_text(context)

    async def truncate_last_assistant_speech(self, chars: int, context: Any) -> None:
        messages = getattr(context.chat_log, "messages", None) or []
        written = bool(messages) and messages[-1].get("role") == "assistant"
        heard = plugin.heard_text(context).strip() if chars else ""
        if written and not _cut_in_mid_command(messages[-1]):
            # The service counts seconds, here of one character each; it cuts before the last word
            # unless there is a character more.
            await service_manager.truncate_last_assistant_speech(
                spoken_seconds=float(chars + 1 if chars else 0),
                chars_per_second=1.0,
                context=context,
            )
            return
        said = f"{heard} ...[interrupted]" if heard else "[interrupted]"
        xml = str(context.env.get("MR_XML_STREAMING", "")) == "1"
        content = said if xml else json.dumps([{"speak": {"text": said}}])
        if written:
            # The service would count the characters of the command with those of its words.
            await context.chat_log.replace_last_assistant([{"type": "text", "text": content}])
        elif heard:
            # The turn was cut before the host had written it down: the agent would say it again.
            await context.chat_log.add_message_async({"role": "assistant", "content": content})

    async def sip_audio_in(self, data: dict[str, Any], context: Any) -> None:
        await pipeline_manager.sip_audio_in(data, context=context)

    def problem(self, what: str, error: BaseException | str, log_id: str = "") -> None:
        plugin.records.problem(what, error, log_id)


@hook()
async def startup(app: Any, context: Any = None) -> None:
    """Start; all plugins are loaded. An error here would stop theirs."""
    if plugin.open_desk(Sessions()):
        for each in (call, hangup, send_dtmf):
            if each.__name__ not in command_manager.functions:
                command()(each)
    plugin.start()


async def on_load(app: Any) -> None:
    """Register routes and shutdown. No host hook fires at its stop; the app's does."""
    from .page import make_router

    # The host shows nothing below CRITICAL unless it is asked to; errors of a call should be seen.
    own = logging.getLogger(__package__)
    if own.level == logging.NOTSET:
        own.setLevel(logging.ERROR)
    app.include_router(make_router(plugin, requires_role("admin")))
    app.router.on_shutdown.append(plugin.shutdown)
