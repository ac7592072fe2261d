"""Voices that agents, personas and settings request."""
