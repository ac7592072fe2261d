"""A helper plugin of the tests; see mod.py."""

from tests.mindroot_host.plugins.telephone_model.mod import on_load
