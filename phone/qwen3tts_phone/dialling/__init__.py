"""Outgoing calls: toll fraud guard, numbers, retries."""
