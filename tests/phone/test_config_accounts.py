"""Accounts and trunks as a file of settings has them, and where their passwords come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from qwen3tts_phone.settings import secrets
from qwen3tts_phone.settings.accounts import check_distinct, read_accounts, server_of, transport_of
from qwen3tts_phone.settings.secrets import secret_files
from qwen3tts_phone.sip.core.account import Account
from qwen3tts_settings.entries import BadConfiguration, Entry, from_yaml
from qwen3tts_settings.key_files import readable_by_others


def listed(text: str) -> Entry:
    entry: Entry = from_yaml(text, "phone.yaml").value["accounts"]
    return entry


def accounts(text: str, env: dict[str, str] | None = None) -> list[Account]:
    return read_accounts("accounts", listed(text), env or {})


def refused(text: str, env: dict[str, str] | None = None) -> BadConfiguration:
    with pytest.raises(BadConfiguration) as error:
        accounts(text, env)
    return error.value


ONE = """accounts:
  - name: office
    registrar: sip:sip.example.org
    user: "100"
"""


def test_an_account_is_read_with_its_password_from_the_environment() -> None:
    (found,) = accounts(ONE + "    password_env: OFFICE\n", {"OFFICE": "open sesame"})
    assert found == Account("sip:sip.example.org", "100", "open sesame", name="office")
    assert "sesame" not in repr(found)


def test_a_password_may_stand_in_a_file_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("pass # word\r\n", "utf-8")
    (found,) = accounts(ONE + f"    password_file: {file}\n")
    assert found.password == "pass # word"


@pytest.mark.parametrize("kind", ["accounts", "trunks"])
def test_a_password_in_the_file_itself_is_refused_without_being_told(kind: str) -> None:
    text = f"{kind}:\n  - name: a\n    server: sip:h\n    password: swordfish\n"
    entry = from_yaml(text, "phone.yaml").value[kind]
    with pytest.raises(BadConfiguration) as error:
        read_accounts("trunks" if kind == "trunks" else "accounts", entry, {})
    assert f"{kind}[0].password is a secret and is not taken from phone.yaml:4" in str(error.value)
    assert "password_env" in error.value.remedy
    assert "password_file" in error.value.remedy
    assert "swordfish" not in str(error.value)


def test_a_variable_that_is_not_set_is_named_with_the_line() -> None:
    error = refused(ONE + "    password_env: OFFICE\n")
    assert "accounts[0].password_env: The environment variable OFFICE is not set" in error.message
    assert "(phone.yaml:5)" in error.message
    assert "export OFFICE" in error.remedy


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"\xff\xfe", "not UTF-8"),
        (b"a\nb\n", "a second line"),
        (b"a\x00b", "a control character"),
        (b"a" * 5000, "more than"),
    ],
)
def test_a_file_that_holds_no_password_is_told(tmp_path: Path, content: bytes, told: str) -> None:
    (tmp_path / "secret").write_bytes(content)
    with pytest.raises(BadConfiguration, match=told) as error:
        secrets.from_secret_file(tmp_path / "secret")
    assert error.value.remedy


def test_a_file_that_is_not_there_is_told_with_the_command_that_makes_it(tmp_path: Path) -> None:
    error = refused(ONE + f"    password_file: {tmp_path / 'none'}\n")
    assert "No such file" in error.message
    assert "(phone.yaml:5)" in error.message
    assert "install -m 600" in error.remedy


def test_one_password_comes_from_one_place() -> None:
    error = refused(ONE + "    password_env: A\n    password_file: b\n", {"A": "x"})
    assert "both password_env and password_file (phone.yaml:6)" in error.message


def test_a_wrong_name_is_told_with_its_line_and_the_right_one() -> None:
    error = refused(ONE + "    expire: 60\n")
    assert "The setting accounts[0].expire is unknown (phone.yaml:5)" in error.message
    assert "Did you mean expires" in error.remedy


def test_a_misspelt_password_leads_to_the_names_that_may_stand_there() -> None:
    error = refused(ONE + "    passwort: x\n")
    assert "password_file" in error.remedy


def test_a_port_of_an_account_is_that_of_the_phone() -> None:
    error = refused(ONE + "    port: 5062\n")
    assert "The setting accounts[0].port is unknown (phone.yaml:5)" in error.message
    assert "share listen.port" in error.remedy
    assert "listen.listeners" in error.remedy


def test_a_number_as_a_user_needs_quotes() -> None:
    error = refused("accounts:\n  - registrar: sip:h\n    user: 0100\n")
    assert "accounts[0].user must be a text, not 64 (phone.yaml:3)" in error.message
    assert error.remedy == "Put it in quotes."


@pytest.mark.parametrize("word", ["off", "false", "no"])
def test_off_is_what_yaml_makes_of_it(word: str) -> None:
    assert accounts(ONE + f"    srtp: {word}\n")[0].srtp == "off"


def test_an_address_that_is_none_is_told_with_its_line() -> None:
    error = refused("accounts:\n  - user: a\n    registrar: not an address\n")
    assert "accounts[0]:" in error.message
    assert "(phone.yaml:3)" in error.message
    assert "sip:" in error.remedy


@pytest.mark.parametrize("text", ["accounts: {name: a}", "accounts: 5", "accounts: [5]"])
def test_what_is_no_list_of_sections_is_told(text: str) -> None:
    assert "must be a" in refused(text + "\n").message


@pytest.mark.parametrize("text", ["accounts:\n", "accounts: []\n"])
def test_none_may_stand_there(text: str) -> None:
    assert accounts(text) == []


def test_a_trunk_is_a_server_that_we_do_not_register_with() -> None:
    text = "trunks:\n  - {name: pbx, server: 'sip:192.0.2.9:5070', allowed_sources: [192.0.2.0/24]}"
    (trunk,) = read_accounts("trunks", from_yaml(text, "f").value["trunks"], {})
    assert (trunk.register, trunk.registrar, trunk.user) == (False, "sip:192.0.2.9:5070", "")


def test_a_trunk_needs_its_server() -> None:
    entry = from_yaml("trunks:\n  - name: pbx\n", "phone.yaml").value["trunks"]
    with pytest.raises(BadConfiguration, match=r"trunks\[0\].server is missing \(phone.yaml:2\)"):
        read_accounts("trunks", entry, {})


def test_two_accounts_of_one_name_are_told_with_both_lines() -> None:
    pair = [Account("sip:a", "1", name="x"), Account("sip:b", "1", name="x")]
    with pytest.raises(BadConfiguration, match=r"'x': phone\.yaml:2 and phone\.yaml:6"):
        check_distinct(pair, ["phone.yaml:2", "phone.yaml:6"])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("sip:pbx.example.org", "sip:PBX.example.org:5060"),
        ("sip:pbx;transport=tls", "sips:pbx:5061"),
        ("sip:[2001:db8::1]", "sip:[2001:db8::1]:5060"),
    ],
)
def test_the_same_user_at_one_registrar_twice_is_told(one: str, other: str) -> None:
    pair = [Account(one, "100", name="x"), Account(other, "100", name="y")]
    with pytest.raises(BadConfiguration, match="same user '100'") as error:
        check_distinct(pair, ["f:2", "f:6"])
    assert "f:2" in error.value.message
    assert "f:6" in error.value.message


def test_the_same_user_at_two_registrars_is_two_accounts() -> None:
    check_distinct([Account("sip:a", "100"), Account("sip:b", "100")], ["f:2", "f:6"])


def test_the_server_and_the_transport_of_an_account_are_those_it_names() -> None:
    assert server_of(Account("sips:Pbx.example.org", "1")) == ("pbx.example.org", 5061)
    assert server_of(Account("sip:pbx:5080", "1")) == ("pbx", 5080)
    assert transport_of(Account("sip:pbx", "1")) == ""
    assert transport_of(Account("sip:pbx", "1", transport="tcp")) == "tcp"
    assert transport_of(Account("sip:pbx", "1", proxy="sip:edge;transport=TLS")) == "tls"


def test_files_of_passwords_are_found_and_looked_at(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("x", "utf-8")
    text = ONE + f"    password_file: {file}\nlisten: {{tls: {{key_password_file: /k}}}}\n"
    entry = from_yaml(text, "f")
    assert list(secret_files(entry)) == [(file, "f:5"), (Path("/k"), "f:6")]
    file.chmod(0o600)
    assert readable_by_others(file) == ""
    file.chmod(0o640)
    assert readable_by_others(file) == "its group (mode 0640)"
    file.chmod(0o644)
    assert readable_by_others(file) == "everybody on this machine (mode 0644)"


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("headers: {Via: somewhere}", "Via"),
        ('headers: {X-Case: "7\\r\\nX-Other: 8"}', "X-Case"),
        ('headers: {"X Case": "7"}', "X Case"),
    ],
)
def test_headers_that_no_call_can_carry_are_refused_before_the_first_call(
    setting: str, said: str
) -> None:
    error = refused(f"accounts:\n  - registrar: sip:pbx.test\n    user: '200'\n    {setting}\n")
    assert said in error.message
    assert "phone.yaml:4" in error.message


@pytest.mark.parametrize("setting", ["expires: 0", "keepalive_s: 2", "transport: sctp"])
def test_a_value_that_is_no_address_is_not_answered_with_how_addresses_are_written(
    setting: str,
) -> None:
    error = refused(f"accounts:\n  - registrar: sip:pbx.test\n    user: '200'\n    {setting}\n")
    assert "sip:HOST" not in error.remedy
    assert error.remedy
    assert "phone.yaml:4" in error.message
