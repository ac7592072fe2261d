"""Outgoing calls: the guard against toll fraud, telephone numbers, retries."""
