"""Calls: dialogs with a session, without I/O."""
