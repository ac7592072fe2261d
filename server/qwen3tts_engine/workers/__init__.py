"""Worker processes of engines, supervised and replaced when they are lost.

Nothing is imported here, so that a worker starts quickly.
"""
