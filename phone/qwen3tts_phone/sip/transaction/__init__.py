"""Transactions, dialogs, digest authentication and client requests."""
