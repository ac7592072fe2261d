"""The part of the agent host's ``lib`` that the plugin uses, for tests that run without the host.

Same names and the same order of choice as MindRoot 15.3.0; what unit tests do not need is left out.
The plugin in the real host is tested in ``tests/mindroot_host``.
"""
