"""A helper plugin of the tests; see mod.py."""

from .mod import on_load as on_load
