"""Child processes: messages, parent's and child's side.

Imports nothing, so that a child starts quickly.
"""
