"""Voices of agents, personas and settings."""
