"""``make tiny-models``: write the tiny checkpoints to a folder."""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.tiny_models.checkpoint import make_tiny


def main() -> None:
    """Write the tiny checkpoints to the folder named on the command line."""
    parser = argparse.ArgumentParser(prog="tests.tiny_models", description=__doc__)
    parser.add_argument("out", type=Path, help="folder to make them in")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    make_tiny(arguments.out, seed=arguments.seed)


if __name__ == "__main__":
    main()
