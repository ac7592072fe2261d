"""A SIP user agent: transactions and dialogs as tables, transports and an endpoint around."""
