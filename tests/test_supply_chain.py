"""What an installation is made of: every requirement has a version, hashes, and no known fault."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
METADATA: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PIN = re.compile(r"(?P<pin>[A-Za-z0-9._-]+==[^\s;]+)[^\n]*?(?P<hashes>(?: \\\n    --hash=\S+)*)\n")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}$")
KNOWN_FAULTS = {
    "python-multipart": "0.0.30",
    "aiohttp": "3.14.2",
    "h11": "0.14.0",
    "starlette": "0.49.0",
    "cryptography": "49.0.0",
    "dnspython": "2.6.0",
}
"""The last release with a published vulnerability that matters here, for each package."""


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "deploy" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pins() -> dict[str, list[tuple[Version, list[str]]]]:
    text = (ROOT / "constraints.txt").read_text("utf-8")
    body = "".join(line for line in text.splitlines(True) if not line.startswith("#"))
    assert PIN.sub("", body) == "", "a line that is no pin"
    found: dict[str, list[tuple[Version, list[str]]]] = {}
    for match in PIN.finditer(body):
        name, version = match["pin"].split("==")
        hashes = match["hashes"].replace("\\\n", " ").split()
        found.setdefault(canonicalize_name(name), []).append((Version(version), hashes))
    return found


def all_requirements() -> list[Requirement]:
    project = METADATA["project"]
    lists = [
        project["dependencies"],
        *project["optional-dependencies"].values(),
        *METADATA["dependency-groups"].values(),
    ]
    found = [Requirement(each) for one in lists for each in one]
    return [each for each in found if canonicalize_name(each.name) != "mr-qwen3tts"]


def test_every_pin_has_hashes_of_its_files() -> None:
    for name, versions in pins().items():
        for version, hashes in versions:
            assert hashes, f"{name}=={version} has no hash"
            assert all(HASH.match(each) for each in hashes), name


def test_every_requirement_is_pinned_within_its_bounds() -> None:
    known = pins()
    for requirement in all_requirements():
        versions = known.get(canonicalize_name(requirement.name), [])
        assert versions, f"{requirement.name} is not in constraints.txt: make lock"
        assert all(requirement.specifier.contains(each) for each, _ in versions), requirement


@pytest.mark.parametrize("package", KNOWN_FAULTS)
def test_the_bounds_leave_out_releases_with_known_vulnerabilities(package: str) -> None:
    named = [each for each in all_requirements() if each.name == package]
    assert named, f"{package} needs a bound of its own"
    for requirement in named:
        assert not requirement.specifier.contains(Version(KNOWN_FAULTS[package])), requirement


def test_extras_that_name_other_extras_are_followed() -> None:
    requirements = script("locked_install").requirements
    everything = {Requirement(each).name for each in requirements(METADATA, ["all"])}
    of_extras = {
        Requirement(each).name
        for name, one in METADATA["project"]["optional-dependencies"].items()
        for each in one
        if name != "all"
    }
    assert everything == of_extras | {
        Requirement(each).name for each in METADATA["project"]["dependencies"]
    }
    assert requirements(METADATA, []) == METADATA["project"]["dependencies"]
    with pytest.raises(ValueError, match=r"no extra 'phones'.*phone"):
        requirements(METADATA, ["phones"])


def test_the_hash_of_a_cpu_build_is_added_to_its_pin_only_while_that_is_locked() -> None:
    lock = script("lock")
    ((pin, digest),) = lock.CPU_BUILDS.items()
    text = f"a==1 \\\n    --hash=sha256:00\n{pin} \\\n    --hash=sha256:11\n"
    assert f"{pin} \\\n    --hash=sha256:{digest} \\\n    --hash=sha256:11\n" in (
        lock.with_cpu_builds(text)
    )
    with pytest.raises(ValueError, match="is not locked"):
        lock.with_cpu_builds("torch==9 \\\n    --hash=sha256:11\n")


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_both_images_are_installed_by_the_hashes_and_say_whose_licences_they_hold(
    kind: str,
) -> None:
    text = (ROOT / "deploy" / "docker" / f"Dockerfile.{kind}").read_text("utf-8")
    steps = [line for line in text.splitlines() if not line.startswith("#")]
    assert "deploy/locked_install.py --python" in "\n".join(steps)
    assert not any("pip install" in line for line in steps)
    assert any(
        line.startswith("COPY") and "NOTICE" in line and "share/doc" in line for line in steps
    )
    assert "eSpeak NG" in text


def test_the_notice_says_what_the_gpl_asks_of_those_who_pass_an_image_on() -> None:
    notice = (ROOT / "NOTICE").read_text("utf-8")
    for part in ("eSpeak NG 1.52.0", "GPL-3.0-or-later", "corresponding source", "FFmpeg"):
        assert part in notice
    assert "NOTICE" in METADATA["project"]["license-files"]


def test_the_bill_of_materials_names_the_native_libraries_of_the_wheels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "deploy"))
    sbom = script("sbom")
    listed = [{"name": name, "bom-ref": f"{name}==1"} for name in ("espeakng-loader", "numpy")]
    components = sbom.with_bundled({"components": list(listed)})["components"]
    licences = {
        each["name"]: each["licenses"][0]["license"]["id"] for each in components[len(listed) :]
    }
    assert licences == {"eSpeak NG": "GPL-3.0-or-later"}
    assert len({each["bom-ref"] for each in components}) == len(components)
    locked = {canonicalize_name(each.name) for each in all_requirements()}
    assert sbom.BUNDLED.keys() <= locked, "a package that is no longer used"
