"""Registrations and keepalives of accounts."""
