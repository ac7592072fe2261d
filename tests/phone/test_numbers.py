"""Telephone numbers: how they are read, which are emergency and premium numbers."""

from __future__ import annotations

import pytest

from qwen3tts_phone.dialling.numbers import (
    SURELY_INTERNATIONAL,
    international,
    is_emergency,
    number_of,
    premium_prefix,
    readings,
)


@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("+49 30 / 123-456", "+4930123456"),
        ("(030) 123.456", "030123456"),
        ("%39%31%31", "911"),
        ("\uff19\uff11\uff11", "911"),
        ("911,,1", "911"),
        ("w911", "911"),
        ("030-1;ext=2", "0301"),
        ("*31#+4930123", "*31#+4930123"),
        ("*21#", "*21#"),
        ("1" * 100, "1" * 100),
    ],
)
def test_a_number_is_read_as_people_write_it(written: str, number: str) -> None:
    assert number_of(written) == number


@pytest.mark.parametrize("name", ["paul", "", "*", "+", "12a", "+49+30", "sip:911@host"])
def test_a_name_is_no_number(name: str) -> None:
    assert number_of(name) == ""


@pytest.mark.parametrize(
    ("number", "country", "known"),
    [
        ("+4930123", "", "+4930123"),
        ("004930123", "", "+4930123"),
        ("011442071234567", "1", "+442071234567"),
        ("030123", "49", "+4930123"),
        ("030123", "", ""),
        ("2125550123", "1", "+12125550123"),
        ("12125550123", "1", "+12125550123"),
        ("5550123", "1", ""),
        ("05550123", "1", ""),
        ("123", "49", ""),
        ("00*1", "49", ""),
    ],
)
def test_the_international_form_is_known_where_prefix_or_country_say_it(
    number: str, country: str, known: str
) -> None:
    assert international(number, prefixes=("00", "011"), country=country) == known


@pytest.mark.parametrize(
    "number", ["112", "+112", "911", "*31#112", "*67911", "9911", "0112", "*31#+112"]
)
def test_emergency_numbers_are_known_in_all_their_forms(number: str) -> None:
    assert is_emergency(number)


@pytest.mark.parametrize("number", ["+49112555", "091112345", "1120", "4911", "+1911555000"])
def test_numbers_that_only_hold_such_digits_are_none(number: str) -> None:
    assert not is_emergency(number)


def test_a_national_emergency_number_is_one_at_home_unless_it_is_written_out() -> None:
    assert is_emergency("101")
    assert not is_emergency("101", at_home=False)
    assert not is_emergency("101", written_out=("101",))
    assert is_emergency("112", at_home=False, written_out=("112",))


@pytest.mark.parametrize(
    "written",
    ["+19005550123", "0019005550123", "01119005550123", "900019005550123"[2:], "*31#001900"],
)
def test_no_way_of_writing_hides_a_premium_prefix(written: str) -> None:
    assert "+1900" in {premium_prefix(each) for each in readings(written, prefixes=("00", "011"))}


def test_an_american_area_code_is_no_satellite() -> None:
    american = readings("8705550123", bare=SURELY_INTERNATIONAL)
    assert not any(map(premium_prefix, american))
    satellite = readings("870773123456", bare=SURELY_INTERNATIONAL)
    assert "+870" in set(map(premium_prefix, satellite))


def test_a_number_without_plus_sign_has_no_premium_prefix() -> None:
    assert premium_prefix("1900555") == premium_prefix("") == premium_prefix("+4930") == ""
