"""Write the software bill of materials of an installation, in CycloneDX's JSON form.

    make sbom                                          # what the CPU image holds
    make sbom SBOM_EXTRAS=server,embedded,phone,webrtc

The extras are installed by locked_install.py into an environment of their own, and what is there
is listed: names, versions, licences, package URLs. Native libraries that a wheel brings along
without naming them in its metadata are added from ``BUNDLED``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

from locked_install import ROOT, install

BUNDLED: dict[str, tuple[tuple[str, str, str], ...]] = {
    "espeakng-loader": (("eSpeak NG", "1.52.0", "GPL-3.0-or-later"),),
    "av": (
        ("FFmpeg", "8", "GPL-2.0-or-later"),
        ("x264", "165", "GPL-2.0-or-later"),
        ("x265", "216", "GPL-2.0-or-later"),
        ("LAME", "3", "LGPL-2.0-or-later"),
    ),
}
"""By package: native libraries in its wheel, as (name, version, licence)."""


def with_bundled(bom: dict[str, Any]) -> dict[str, Any]:
    """Add the native libraries of the packages that are listed."""
    for component in list(bom["components"]):
        for name, version, licence in BUNDLED.get(component["name"], ()):
            bom["components"].append(
                {
                    "type": "library",
                    "bom-ref": f"{component['bom-ref']}#{name}",
                    "name": name,
                    "version": version,
                    "licenses": [{"license": {"id": licence}}],
                    "description": f"in the wheel of {component['name']}",
                }
            )
    return bom


def main() -> None:
    """Install, list, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--extras", required=True, help="separated by commas")
    parser.add_argument("file", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        environment = Path(name) / "env"
        venv.create(environment, with_pip=True)
        python = str(environment / "bin" / "python")
        try:
            install(python, args.extras.split(","))
        except ValueError as error:
            sys.exit(f"sbom: {error}")
        listing = subprocess.run(
            [
                *(sys.executable, "-m", "cyclonedx_py", "environment", python),
                *("--pyproject", str(ROOT / "pyproject.toml"), "--output-format", "JSON"),
            ],
            check=True,
            capture_output=True,
        )
    bom = with_bundled(json.loads(listing.stdout))
    args.file.parent.mkdir(parents=True, exist_ok=True)
    args.file.write_text(json.dumps(bom, indent=2) + "\n", "utf-8")
    print(f"{args.file}: {len(bom['components'])} components")


if __name__ == "__main__":
    main()
