from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from qwen3tts_phone.softphone.access import (
    FORGET_S,
    FREE_FAILURES,
    LONGEST_WAIT_S,
    MAX_ADDRESSES,
    AllowedHosts,
    ProxyHeaders,
    TokenCheck,
    bearer_token,
    new_token,
)

HERE = "192.0.2.7"


def test_only_the_token_itself_is_right() -> None:
    access = TokenCheck("correct-token")
    assert access.admits("correct-token", HERE, 0.0)
    for wrong in ("", "correct-toke", "correct-token ", "correct-tokené", "\udcff"):
        assert not access.admits(wrong, f"of {wrong!r}", 0.0)
    assert "correct" not in repr(access)


def test_wrong_tokens_cost_more_and_more_time() -> None:
    access = TokenCheck("right")
    waits = []
    now = 0.0
    for _ in range(FREE_FAILURES + 9):
        waits.append(access.wait_s(HERE, now))
        now += waits[-1]
        assert not access.admits("wrong", HERE, now)
    assert waits[:FREE_FAILURES] == [0.0] * FREE_FAILURES
    assert waits[FREE_FAILURES : FREE_FAILURES + 4] == [1.0, 2.0, 4.0, 8.0]
    assert waits[-1] == LONGEST_WAIT_S


def test_the_right_token_passes_also_while_its_address_waits() -> None:
    access = TokenCheck("right")
    for _ in range(FREE_FAILURES + 12):
        access.admits("wrong", HERE, 0.0)
    assert access.wait_s(HERE, 0.5) > 0.0
    assert not access.admits("wrong", HERE, 0.5)
    assert access.admits("right", HERE, 0.5)
    assert access.wait_s(HERE, 0.5) == 0.0


PROXY = {
    "Host": "127.0.0.1:8780",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Host": "phone.example.org",
    "X-Forwarded-For": "203.0.113.9, 198.51.100.7, 127.0.0.1",
}


def test_the_headers_of_a_trusted_proxy_say_how_a_browser_asked() -> None:
    front = ProxyHeaders("http", trusted_proxies=("127.0.0.1", "198.51.100.0/24"))
    assert front.origin_of_request("127.0.0.1", PROXY) == (
        "https",
        "phone.example.org",
        "203.0.113.9",
    )
    assert front.origin_of_request("192.0.2.1", PROXY) == ("http", "127.0.0.1:8780", "192.0.2.1")
    assert ProxyHeaders("http").origin_of_request("127.0.0.1", PROXY) == (
        "http",
        "127.0.0.1:8780",
        "127.0.0.1",
    )


def test_a_proxy_may_add_a_line_of_its_own_beneath_what_the_client_has_sent() -> None:
    """As HAProxy does; the first line is then whatever a client makes of it."""
    headers = CIMultiDict(
        [("X-Forwarded-For", "1.1.1.1"), ("Host", "h"), ("x-forwarded-for", "203.0.113.9")]
    )
    front = ProxyHeaders("http", trusted_proxies=("127.0.0.1",))
    assert front.origin_of_request("127.0.0.1", headers).address == "203.0.113.9"


def test_a_scheme_or_host_that_stands_there_twice_is_that_of_the_nearest_proxy() -> None:
    headers = CIMultiDict([("Host", "h")])
    for scheme, host in (("http", "evil.example"), ("https", "phone.example.org")):
        headers.add("X-Forwarded-Proto", scheme)
        headers.add("X-Forwarded-Host", host)
    asked = ProxyHeaders("http", trusted_proxies=("127.0.0.1",)).origin_of_request(
        "127.0.0.1", headers
    )
    assert (asked.scheme, asked.host) == ("https", "phone.example.org")


@given(
    st.dictionaries(
        st.sampled_from(sorted(PROXY)), st.text(max_size=60) | st.sampled_from(["a,,b", "[::1]"])
    )
)
def test_no_header_of_a_proxy_breaks_it(headers: dict[str, str]) -> None:
    asked = ProxyHeaders("https", trusted_proxies=("127.0.0.0/8",)).origin_of_request(
        "127.0.0.1", headers
    )
    assert asked.scheme in ("http", "https")
    assert str(ipaddress.ip_address(asked.address)) == asked.address


def test_a_public_address_is_an_origin_of_ours_and_no_other_is() -> None:
    front = ProxyHeaders("http", "https://phone.example.org")
    assert front.is_public("https://phone.example.org")
    assert front.is_public("https://PHONE.example.org:443")
    for other in (None, "", "null", "http://phone.example.org", "https://example.org", "https://x"):
        assert not front.is_public(other)
    assert not ProxyHeaders("http").is_public("")


def test_old_mistakes_are_forgotten_and_never_fill_the_memory() -> None:
    access = TokenCheck("right")
    for _ in range(FREE_FAILURES):
        access.admits("wrong", HERE, 0.0)
    assert access.wait_s(HERE, FORGET_S) == 0.0
    access.admits("wrong", HERE, FORGET_S)
    assert access.wait_s(HERE, FORGET_S) == 0.0
    for number in range(MAX_ADDRESSES + 10):
        access.admits("wrong", str(number), FORGET_S)
    assert len(access._failures) == MAX_ADDRESSES


def test_a_new_token_needs_no_quoting_and_is_never_the_same() -> None:
    tokens = {new_token() for _ in range(50)}
    assert len(tokens) == 50
    assert all(
        len(each) == 24 and each.replace("-", "").replace("_", "").isalnum() for each in tokens
    )


def test_a_bearer_token_is_read_as_the_header_has_it() -> None:
    assert bearer_token("Bearer abc") == "abc"
    assert bearer_token("bearer  abc ") == "abc"
    assert bearer_token("Basic abc") == ""
    assert bearer_token(None) == ""


def test_this_machine_alone_answers_to_its_own_names() -> None:
    hosts = AllowedHosts("127.0.0.1", ["softphone.example"])
    for good in ("127.0.0.1:80", "localhost:8780", "[::1]:8780", "LOCALHOST", "softphone.example"):
        assert hosts.admits(good), good
    for bad in ("evil.example", "192.0.2.7:8780", "", None, "[::1", "127.0.0.1.evil.example"):
        assert not hosts.admits(bad), bad


def test_an_open_server_answers_to_addresses_and_to_no_foreign_name() -> None:
    hosts = AllowedHosts("0.0.0.0", ["box.local"])
    for good in ("192.0.2.7:8780", "[2001:db8::1]:8780", "box.local:8780", "localhost"):
        assert hosts.admits(good), good
    assert not hosts.admits("rebound.evil.example:8780")


@pytest.mark.parametrize(
    ("origin", "same"),
    [
        ("http://127.0.0.1:8780", True),
        ("http://127.0.0.1:8781", False),
        ("https://127.0.0.1:8780", False),
        ("http://localhost:8780", False),
        ("http://evil.example", False),
        ("http://127.0.0.1:8780/path", False),
        ("http://127.0.0.1:99999", False),
        ("null", False),
        ("", False),
        (None, False),
    ],
)
def test_a_request_comes_from_a_page_of_ours_or_not_at_all(origin: str | None, same: bool) -> None:
    assert AllowedHosts("127.0.0.1").same_origin(origin, "127.0.0.1:8780", "http") is same


def test_the_port_that_goes_without_saying_is_the_same_origin() -> None:
    hosts = AllowedHosts("0.0.0.0", ["box.local"])
    assert hosts.same_origin("https://box.local", "box.local:443", "https")
    assert hosts.same_origin("https://box.local:443", "box.local", "https")
