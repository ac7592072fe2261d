"""The files of settings beside the guides: ours are taken, the neighbours' are well formed."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from qwen3tts_phone.diagnosis.findings import CODES
from qwen3tts_phone.settings.file import config_from
from qwen3tts_phone.settings.sections import PhoneConfig
from qwen3tts_settings.entries import from_yaml

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "configs"
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
OURS = ["asterisk/phone.yaml", "freeswitch/phone.yaml", "nat.yaml", "trunk.yaml"]
CODE = re.compile(r"`(\w+)`")
PASSWORDS = {"PBX_PASSWORD": "p", "PROVIDER_PASSWORD": "p"}


def taken(name: str, folder: Path) -> PhoneConfig:
    """One of our files; what it keeps, and its password's file, are in a folder of the test."""
    (folder / "password").write_text("p", "utf-8")
    (folder / "password").chmod(0o600)
    text = (CONFIGS / name).read_text("utf-8")
    text = text.replace("/etc/mr-qwen3tts/provider.password", str(folder / "password"))
    text = text.replace("/var/log/mr-qwen3tts", str(folder))
    return config_from(from_yaml(text, name), PASSWORDS)


@pytest.mark.parametrize("name", OURS)
def test_our_files_are_taken_without_a_remark(name: str, tmp_path: Path) -> None:
    found = taken(name, tmp_path)
    assert found.accounts
    assert [str(each) for each in found.remarks] == []


@pytest.mark.parametrize("name", OURS)
def test_with_the_parts_that_are_left_out_they_are_taken_too(name: str, tmp_path: Path) -> None:
    text = (CONFIGS / name).read_text("utf-8")
    if not re.search(r"^#\w", text, re.M) and not re.search(r"^# [a-z_]+:", text, re.M):
        return
    lines = []
    for line in text.splitlines():
        section = re.fullmatch(r"#(\w+:)", line)
        setting = re.fullmatch(r"#( +(?:- )?\w+: .*)", line)
        lines.append(section[1] if section else " " + setting[1] if setting else line)
    (tmp_path / "password").write_text("p", "utf-8")
    whole = "\n".join(lines).replace("/etc/mr-qwen3tts/provider.password", f"{tmp_path}/password")
    whole = whole.replace("/var/log/mr-qwen3tts", str(tmp_path))
    config_from(from_yaml(whole, name), PASSWORDS)


@pytest.mark.parametrize("path", sorted((CONFIGS / "freeswitch").glob("*.xml")), ids=str)
def test_the_files_for_freeswitch_are_well_formed(path: Path) -> None:
    root = ET.fromstring(path.read_text("utf-8"))
    assert root.tag == "include"
    for condition in root.iter("condition"):
        re.compile(condition.attrib["expression"])


def test_the_file_for_asterisk_names_what_it_uses() -> None:
    """Each ``auth``, ``aors``, ``transport`` and ``endpoint`` leads to a section of that type."""
    sections: set[tuple[str, str]] = set()
    used: list[tuple[str, str]] = []
    name = ""
    for line in (CONFIGS / "asterisk" / "pjsip.conf").read_text("utf-8").splitlines():
        line = line.partition(";")[0].strip()
        if header := re.fullmatch(r"\[([\w-]+)\]", line):
            name = header[1]
        elif line:
            key, _, value = line.partition("=")
            assert value, line
            if key == "type":
                sections.add((value, name))
            elif key in ("auth", "aors", "transport", "endpoint"):
                used.append((key.removesuffix("s"), value))
    assert used
    for kind, named in used:
        assert (kind, named) in sections, (kind, named)


def test_user_password_and_addresses_are_the_same_on_both_sides(tmp_path: Path) -> None:
    ours = taken("asterisk/phone.yaml", tmp_path)
    theirs = (CONFIGS / "asterisk" / "pjsip.conf").read_text("utf-8")
    assert f"username={ours.accounts[0].user}\n" in theirs
    assert "match=192.0.2.2\n" in theirs
    user = (CONFIGS / "freeswitch" / "agent_user.xml").read_text("utf-8")
    ours = taken("freeswitch/phone.yaml", tmp_path)
    assert f'<user id="{ours.accounts[0].user}">' in user


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.name)
def test_what_a_guide_leads_to_is_there(guide: Path) -> None:
    text = guide.read_text("utf-8")
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if not link.startswith("http"):
            assert (guide.parent / link).exists(), link
    assert "**Untested:**" in text


def test_the_findings_that_the_guides_name_exist() -> None:
    named: set[str] = set()
    for guide in GUIDES:
        text = guide.read_text("utf-8")
        for table in re.findall(r"^\| it says \|.*\n((?:\|.*\n)+)", text, re.M):
            named |= {code for row in table.splitlines() for code in CODE.findall(row[:60])}
        for sentence in re.findall(r"finds most of them: ([^.]+)\.", text):
            named |= set(CODE.findall(sentence))
    assert len(named) > 8
    assert named <= set(CODES)


def test_asterisk_looks_at_the_user_name_before_the_address() -> None:
    """With both ways in, REGISTER would be the trunk's (type=identify), and get 404."""
    lines = (CONFIGS / "asterisk" / "pjsip.conf").read_text("utf-8").splitlines()
    begin = lines.index("[global]")
    section = lines[begin + 1 : lines.index("", begin)]
    assert section == ["type=global", "endpoint_identifier_order=username,ip,anonymous"]
    assert lines.index("type=identify") > begin
