"""Child processes: their messages, the parent's side and the child's side.

Nothing is imported here, so that a child starts quickly.
"""
