"""A helper plugin of the tests; see mod.py."""

from tests.mindroot_host.plugins.recording_sip.mod import on_load
