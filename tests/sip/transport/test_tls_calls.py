"""Calls, names and mistakes over TLS, on 127.0.0.1."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from qwen3tts_phone.errors import BadCertificate, CalleeUnreachable, CallError, RegistrationFailed
from qwen3tts_phone.sip import Account, SipCall, SipEndpoint, SipSettings, TlsSettings
from qwen3tts_phone.sip.core.settings import GateSettings
from qwen3tts_phone.sip.gate import SourceGate
from qwen3tts_phone.sip.transport import stream
from qwen3tts_phone.sip.transport.locator import Locator
from tests.sip.certificates import DAY, Authority
from tests.sip.name_server import Domains
from tests.sip.phones import QUICK, answer_all, good_call, session
from tests.sip.registrar import RegistrarServer

pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def settings(authority: Authority) -> SipSettings:
    """Of an endpoint that listens at localhost."""
    ours = authority.sign("localhost", "localhost", "127.0.0.1", "::1")
    tls = TlsSettings(ours.certificate, ours.key, ca=authority.file, port=0)
    return SipSettings(timers=QUICK, tls=tls)


@pytest.fixture(scope="module")
def calling(authority: Authority) -> SipSettings:
    """Of an endpoint that calls over TLS, and has no certificate."""
    return SipSettings(timers=QUICK, tls=TlsSettings(ca=authority.file))


@pytest.fixture
async def callee(settings: SipSettings) -> AsyncIterator[SipEndpoint]:
    async with SipEndpoint(replace(settings, user="other")) as other:
        yield other


@pytest.fixture
async def answering(callee: SipEndpoint) -> AsyncIterator[list[SipCall]]:
    seen: list[SipCall] = []
    task = asyncio.create_task(answer_all(callee, seen))
    yield seen
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def address(callee: SipEndpoint, host: str = "localhost") -> str:
    return f"sip:other@{host}:{callee.tls_port};transport=tls"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_a_call_with_changes_goes_over_tls(
    settings: SipSettings, callee: SipEndpoint, answering: list[SipCall], host: str
) -> None:
    async with SipEndpoint(settings) as endpoint:
        await good_call(endpoint, address(callee, host))
        (theirs,) = answering
        assert (await asyncio.wait_for(theirs.wait_ended(), 5)).by == "remote"
        request = theirs.core.request  # type: ignore[union-attr]
        assert request.via.transport == "TLS"
        assert f":{endpoint.tls_port};transport=tls>" in request.require("Contact")


async def test_a_sips_address_makes_the_contacts_sips_too(
    settings: SipSettings, callee: SipEndpoint, answering: list[SipCall]
) -> None:
    async with SipEndpoint(settings) as endpoint:
        await good_call(endpoint, f"sips:other@localhost:{callee.tls_port}")
    (theirs,) = answering
    assert theirs.core.request.require("Contact").startswith("<sips:agent@")  # type: ignore[union-attr]
    assert theirs.core.dialog is not None
    assert theirs.core.dialog.contact.startswith("<sips:other@")


async def test_who_does_not_listen_is_hung_up_on_over_his_own_connection(
    calling: SipSettings, callee: SipEndpoint, answering: list[SipCall]
) -> None:
    async with SipEndpoint(calling) as endpoint:
        assert endpoint.settings.tls is not None
        call = await endpoint.place(address(callee), session().offer())
        await asyncio.wait_for(call.answered(), 5)
        await asyncio.wait_for(answering[0].bye(), 5)
        assert (await asyncio.wait_for(call.wait_ended(), 5)).by == "remote"


async def refused(endpoint: SipEndpoint, target: str) -> CallError:
    call = await endpoint.place(target, session().offer())
    with pytest.raises(CallError) as error:
        await asyncio.wait_for(call.answered(), 5)
    return error.value


async def test_a_certificate_of_an_unknown_authority_ends_the_call_by_name(
    callee: SipEndpoint, tmp_path_factory: pytest.TempPathFactory
) -> None:
    stranger = Authority(tmp_path_factory.mktemp("stranger"))
    settings = SipSettings(timers=QUICK, tls=TlsSettings(ca=stranger.file))
    async with SipEndpoint(settings) as endpoint:
        error = await refused(endpoint, address(callee))
    assert isinstance(error, BadCertificate)
    assert f"localhost:{callee.tls_port} over TLS is not trusted" in error.message
    assert "tls.ca" in error.remedy


async def test_a_certificate_for_another_name_ends_the_call_by_name(
    authority: Authority, calling: SipSettings
) -> None:
    theirs = authority.sign("elsewhere", "pbx.example")
    tls = TlsSettings(theirs.certificate, theirs.key, port=0)
    async with (
        SipEndpoint(SipSettings(timers=QUICK, tls=tls)) as other,
        SipEndpoint(calling) as endpoint,
    ):
        error = await refused(endpoint, address(other))
    assert isinstance(error, BadCertificate)
    assert "localhost" in error.message
    assert "name" in error.remedy


async def test_an_expired_certificate_of_the_far_end_is_told(
    authority: Authority, calling: SipSettings
) -> None:
    theirs = authority.sign("expired", "localhost", begins=-9 * DAY, ends=-DAY)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(theirs.certificate, theirs.key)
    server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    async with SipEndpoint(calling) as endpoint:
        error = await refused(endpoint, f"sip:x@localhost:{port};transport=tls")
    server.close()
    await server.wait_closed()
    assert isinstance(error, BadCertificate)
    assert "expired" in error.message
    assert "renew" in error.remedy


async def test_without_verification_any_certificate_is_taken(
    callee: SipEndpoint, answering: list[SipCall]
) -> None:
    settings = SipSettings(timers=QUICK, tls=TlsSettings(verify=False))
    async with SipEndpoint(settings) as endpoint:
        await good_call(endpoint, address(callee))


@pytest.fixture
async def strict(settings: SipSettings, authority: Authority) -> AsyncIterator[SipEndpoint]:
    """Requires a client certificate."""
    assert settings.tls is not None
    tls = replace(settings.tls, require_client_certificate=True)
    async with SipEndpoint(replace(settings, tls=tls, user="other")) as other:
        yield other


async def test_a_client_certificate_is_shown_where_it_is_wanted(
    authority: Authority, strict: SipEndpoint
) -> None:
    ours = authority.sign("client", "agent.example", client_only=True)
    tls = TlsSettings(ca=authority.file, client_certificate=ours.certificate, client_key=ours.key)
    task = asyncio.create_task(answer_all(strict, []))
    async with SipEndpoint(SipSettings(timers=QUICK, tls=tls)) as endpoint:
        await good_call(endpoint, address(strict))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_client_certificate_that_is_missing_is_thought_of(
    calling: SipSettings, strict: SipEndpoint
) -> None:
    """Not every server sends the alert that says so before it closes."""
    async with SipEndpoint(calling) as endpoint:
        error = await refused(endpoint, address(strict))
    assert isinstance(error, CalleeUnreachable)
    assert error.why == "tls"
    assert "client_certificate" in error.remedy


async def test_a_server_that_says_that_it_wants_a_certificate_is_quoted(
    authority: Authority, calling: SipSettings
) -> None:
    theirs = authority.sign("asking", "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(theirs.certificate, theirs.key)
    context.load_verify_locations(authority.file)
    context.verify_mode = ssl.CERT_REQUIRED

    def serve(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        connection.settimeout(5)
        wrapped = context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        with contextlib.suppress(ssl.SSLError):
            wrapped.do_handshake()
        with socket.socket(fileno=wrapped.detach()) as plain, contextlib.suppress(OSError):
            plain.settimeout(5)
            # Until the other end has read the alert and closes.
            while plain.recv(4096):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = asyncio.get_running_loop().run_in_executor(None, serve, listening)
        async with SipEndpoint(calling) as endpoint:
            port = listening.getsockname()[1]
            error = await refused(endpoint, f"sip:x@localhost:{port};transport=tls")
        await serving
    assert isinstance(error, BadCertificate)
    assert "wants one" in error.message
    assert "client_certificate" in error.remedy


async def test_a_port_that_does_not_speak_tls_is_told(
    calling: SipSettings, callee: SipEndpoint
) -> None:
    async with SipEndpoint(calling) as endpoint:
        error = await refused(endpoint, f"sip:x@localhost:{callee.port};transport=tls")
    assert isinstance(error, CalleeUnreachable)
    assert error.why in ("tls", "timeout")


async def test_who_speaks_no_tls_to_the_tls_port_is_closed_and_calls_go_on(
    settings: SipSettings, callee: SipEndpoint, answering: list[SipCall]
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", callee.tls_port)
    writer.write(b"OPTIONS sip:x SIP/2.0\r\n\r\n")
    assert await asyncio.wait_for(reader.read(), 5) is not None
    writer.close()
    async with SipEndpoint(settings) as endpoint:
        await good_call(endpoint, address(callee))


async def test_handshakes_that_are_never_done_are_bounded_and_calls_go_on(
    settings: SipSettings,
    callee: SipEndpoint,
    answering: list[SipCall],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream, "MAX_HANDSHAKES", 3)
    pairs = [await asyncio.open_connection("127.0.0.1", callee.tls_port) for _ in range(10)]
    for reader, _ in pairs[:7]:
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 4) == b""
    async with SipEndpoint(settings) as endpoint:
        await good_call(endpoint, address(callee))
    for _, writer in pairs:
        writer.close()


def test_connections_that_wait_to_be_taken_all_at_once_are_bounded_as_well(
    settings: SipSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "MAX_HANDSHAKES", 3)
    waiting: list[socket.socket] = []

    async def taking() -> None:
        async with SipEndpoint(settings) as endpoint:
            # The loop has no turn meanwhile: all wait in the queue of the system.
            waiting.extend(
                socket.create_connection(("127.0.0.1", endpoint.tls_port)) for _ in range(20)
            )
            transport = endpoint._listeners.bound[0].streams["tls"]
            most = 0
            for _ in range(200):
                await asyncio.sleep(0)
                most = max(most, len(transport._handshakes))
            assert most == 3

    asyncio.run(taking())
    for sock in waiting:
        sock.close()


async def test_connections_whose_handshake_is_not_done_count_for_their_source(
    settings: SipSettings,
) -> None:
    gate = SourceGate(GateSettings(trusted=(), max_connections_per_source=2))
    async with SipEndpoint(settings, gate=gate) as endpoint:
        pairs = [await asyncio.open_connection("127.0.0.1", endpoint.tls_port) for _ in range(3)]
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(pairs[2][0].read(), 4) == b""
        assert gate.counts["connections"] == 1
        for _, writer in pairs:
            writer.close()


async def test_a_name_gets_no_connection_that_was_made_to_another_name(
    settings: SipSettings, callee: SipEndpoint, answering: list[SipCall]
) -> None:
    """What a certificate proved for one name says nothing about another at the same address."""
    domains = Domains(hosts={"localhost": ("127.0.0.1",), "pbx.example": ("127.0.0.1",)})
    locator = Locator(lambda: 0.0, records=domains)
    async with SipEndpoint(settings, locator=locator) as endpoint:
        await good_call(endpoint, address(callee, "localhost"))
        error = await refused(endpoint, address(callee, "pbx.example"))
        assert isinstance(error, BadCertificate)
        await good_call(endpoint, address(callee, "localhost"))


async def test_transport_tls_without_settings_names_them() -> None:
    from qwen3tts_phone.errors import BadSip

    async with SipEndpoint(SipSettings(timers=QUICK)) as endpoint:
        for target in ("sips:x@127.0.0.1", "sip:x@127.0.0.1;transport=tls"):
            with pytest.raises(BadSip, match="not enabled") as error:
                await endpoint.place(target, "v=0")
            assert "tls settings" in error.value.remedy


async def test_an_answer_goes_back_by_the_connection_whatever_via_says(
    callee: SipEndpoint, authority: Authority
) -> None:
    context = ssl.create_default_context(cafile=str(authority.file))
    reader, writer = await asyncio.open_connection("localhost", callee.tls_port, ssl=context)
    writer.write(
        b"OPTIONS sips:other@127.0.0.1 SIP/2.0\r\n"
        b"Via: SIP/2.0/TLS 192.0.2.77;branch=z9hG4bKtls\r\n"
        b"From: <sip:x@192.0.2.77>;tag=1\r\nTo: <sips:other@127.0.0.1>\r\n"
        b"Call-ID: over-tls\r\nCSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n"
    )
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
    assert answer.startswith(b"SIP/2.0 200 OK")
    assert b"received=127.0.0.1" in answer
    writer.close()
    with contextlib.suppress(ssl.SSLError, ConnectionError):
        await writer.wait_closed()


async def test_a_registration_over_tls_is_made_anew_when_its_connection_is_lost(
    authority: Authority, calling: SipSettings
) -> None:
    theirs = authority.sign("registrar", "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(theirs.certificate, theirs.key)
    async with (
        RegistrarServer(tls=context) as registrar,
        SipEndpoint(calling) as endpoint,
    ):
        uri = f"sip:localhost:{registrar.port}"
        line = await endpoint.add(Account(uri, "alice", transport="tls"))
        assert line.server == f"127.0.0.1:{registrar.port} over TLS"
        assert line.registration is not None
        registrar.drop_connections()
        await asyncio.wait_for(line.registration.refreshed(), 5)
        assert len(registrar.of("REGISTER")) == 2


async def test_a_registrar_whose_certificate_is_not_trusted_is_told_by_name(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory, calling: SipSettings
) -> None:
    stranger = Authority(tmp_path_factory.mktemp("stranger"))
    theirs = stranger.sign("registrar", "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(theirs.certificate, theirs.key)
    async with (
        RegistrarServer(tls=context) as registrar,
        SipEndpoint(calling) as endpoint,
    ):
        uri = f"sip:localhost:{registrar.port};transport=tls"
        with pytest.raises(RegistrationFailed, match="is not trusted") as error:
            await endpoint.add(Account(uri, "alice"))
        assert error.value.why == "tls"
        assert isinstance(error.value.__cause__, BadCertificate)
