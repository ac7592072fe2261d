"""Certificates and keys are checked by name before anything is bound."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from qwen3tts_phone.errors import BadCertificate
from qwen3tts_phone.sip import SipEndpoint, SipSettings, TlsSettings
from qwen3tts_phone.sip.transport.tls import check_certificates, names_cover_host
from tests.sip.certificates import DAY, Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def test_a_good_certificate_brings_no_warning(authority: Authority) -> None:
    ours = authority.sign("good", "pbx.example", "192.0.2.1")
    tls = TlsSettings(ours.certificate, ours.key, ca=authority.file)
    assert check_certificates(tls, ("pbx.example", "192.0.2.1")) == ()


def test_a_certificate_and_its_key_may_stand_in_one_file(
    authority: Authority, tmp_path: Path
) -> None:
    ours = authority.sign("together", "pbx.example")
    both = tmp_path / "both.pem"
    both.write_bytes(ours.certificate.read_bytes() + ours.key.read_bytes())
    both.chmod(0o600)
    assert check_certificates(TlsSettings(both)) == ()


@pytest.mark.parametrize("field", ["certificate", "key", "ca", "client_certificate", "client_key"])
def test_a_file_that_is_missing_is_named(authority: Authority, tmp_path: Path, field: str) -> None:
    ours = authority.sign("present", "pbx.example")
    gone = tmp_path / "gone.pem"
    values = {
        "certificate": ours.certificate,
        "key": ours.key,
        "ca": authority.file,
        "client_certificate": ours.certificate,
        "client_key": ours.key,
        field: gone,
    }
    with pytest.raises(BadCertificate, match=r"gone\.pem.*cannot be read.*No such file"):
        check_certificates(TlsSettings(**values))  # type: ignore[arg-type]


def test_a_folder_is_no_certificate(authority: Authority, tmp_path: Path) -> None:
    with pytest.raises(BadCertificate, match="Is a directory"):
        check_certificates(TlsSettings(tmp_path))


@pytest.mark.parametrize("content", [b"", b"\x30\x82\x01\x0a binary", b"hello"])
def test_a_file_of_another_kind_is_named_with_the_remedy(tmp_path: Path, content: bytes) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_bytes(content)
    with pytest.raises(BadCertificate, match="holds none in PEM") as error:
        check_certificates(TlsSettings(wrong))
    assert "openssl x509" in error.value.remedy


def test_a_damaged_certificate_is_named(authority: Authority, tmp_path: Path) -> None:
    ours = authority.sign("whole", "pbx.example")
    lines = ours.certificate.read_text().splitlines()
    lines[2] = "AAAA" + lines[2][4:]
    damaged = tmp_path / "damaged.pem"
    damaged.write_text("\n".join([lines[0], *lines[2:], ""]))
    with pytest.raises(BadCertificate, match=r"damaged\.pem"):
        check_certificates(TlsSettings(damaged, ours.key))
    with pytest.raises(BadCertificate, match=r"damaged\.pem"):
        check_certificates(TlsSettings(ours.certificate, ours.key, ca=damaged))


def test_a_key_that_does_not_fit_is_named_with_its_certificate(authority: Authority) -> None:
    one, other = authority.sign("one", "pbx.example"), authority.sign("other", "pbx.example")
    with pytest.raises(BadCertificate, match=r"other\.key' does not fit .*one\.pem"):
        check_certificates(TlsSettings(one.certificate, other.key))


@pytest.mark.parametrize("password", ["", "wrong"])
def test_a_protected_key_without_its_password_is_refused_and_nobody_is_asked(
    authority: Authority, password: str
) -> None:
    ours = authority.sign("protected", "pbx.example", password=b"secret")
    tls = TlsSettings(ours.certificate, ours.key, key_password=password)
    with pytest.raises(BadCertificate, match="password does not open it"):
        check_certificates(tls)
    assert "wrong" not in repr(tls)


def test_a_protected_key_opens_with_its_password(authority: Authority) -> None:
    ours = authority.sign("opened", "pbx.example", password=b"secret")
    assert check_certificates(TlsSettings(ours.certificate, ours.key, key_password="secret")) == ()


def test_an_expired_certificate_is_refused_with_its_date(authority: Authority) -> None:
    ours = authority.sign("old", "pbx.example", begins=-20 * DAY, ends=-10 * DAY)
    with pytest.raises(BadCertificate, match=r"old\.pem' has expired \("):
        check_certificates(TlsSettings(ours.certificate, ours.key))


def test_a_certificate_of_the_future_points_to_the_clock(authority: Authority) -> None:
    ours = authority.sign("early", "pbx.example", begins=10 * DAY)
    with pytest.raises(BadCertificate, match="not valid before") as error:
        check_certificates(TlsSettings(ours.certificate, ours.key))
    assert "clock" in error.value.remedy


def test_a_certificate_that_ends_soon_is_warned_of(authority: Authority) -> None:
    ours = authority.sign("soon", "pbx.example", ends=3 * DAY + datetime.timedelta(hours=1))
    (warning,) = check_certificates(TlsSettings(ours.certificate, ours.key))
    assert "expires in 3 days" in warning


def test_a_name_that_the_certificate_does_not_bear_is_warned_of(authority: Authority) -> None:
    ours = authority.sign("named", "pbx.example", "*.sip.example")
    tls = TlsSettings(ours.certificate, ours.key)
    (warning,) = check_certificates(tls, ("pbx.example", "a.sip.example", "192.0.2.7"))
    assert "'192.0.2.7'" in warning
    assert "pbx.example, *.sip.example" in warning


def test_a_certificate_for_clients_does_not_serve(authority: Authority) -> None:
    ours = authority.sign("client", "pbx.example", client_only=True)
    with pytest.raises(BadCertificate, match="purpose"):
        check_certificates(TlsSettings(ours.certificate, ours.key))
    shown = TlsSettings(client_certificate=ours.certificate, client_key=ours.key)
    assert check_certificates(shown) == ()


@pytest.mark.parametrize(
    ("mode", "who"), [(0o644, "everybody on this machine (mode 0644)"), (0o640, "its group")]
)
def test_a_key_that_others_can_read_is_warned_of(authority: Authority, mode: int, who: str) -> None:
    ours = authority.sign("open", "pbx.example")
    ours.key.chmod(mode)
    (warning,) = check_certificates(TlsSettings(ours.certificate, ours.key))
    assert f"read by {who}" in warning


def test_not_verifying_is_warned_of() -> None:
    (warning,) = check_certificates(TlsSettings(verify=False))
    assert "any certificate" in warning


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"key": "x"}, "tls.key"),
        ({"client_key": "x"}, "tls.client_key"),
        ({"require_client_certificate": True}, "tls.require_client_certificate"),
        ({"port": 70000}, "tls.port"),
    ],
)
def test_settings_that_contradict_each_other_are_named(
    fields: dict[str, object], name: str
) -> None:
    with pytest.raises(ValueError, match=f"^{name}"):
        TlsSettings(**fields)  # type: ignore[arg-type]


def test_names_are_compared_as_tls_does() -> None:
    names = [("DNS", "PBX.example"), ("DNS", "*.a.example"), ("IP Address", "2001:DB8:0::1")]
    assert names_cover_host(names, "pbx.example.")
    assert names_cover_host(names, "x.a.example")
    assert names_cover_host(names, "[2001:db8::1]")
    assert not names_cover_host(names, "a.example")
    assert not names_cover_host(names, "x.y.a.example")
    assert not names_cover_host(names, "192.0.2.1")
    assert not names_cover_host([], "pbx.example")


@pytest.mark.network
async def test_a_bad_certificate_is_told_before_anything_is_bound(authority: Authority) -> None:
    one, other = authority.sign("start", "pbx.example"), authority.sign("strange", "pbx.example")
    endpoint = SipEndpoint(SipSettings(tls=TlsSettings(one.certificate, other.key, port=0)))
    with pytest.raises(BadCertificate, match="does not fit"):
        await endpoint.start()
    assert endpoint.port == 0
    assert endpoint._listeners.bound == []
