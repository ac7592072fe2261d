"""SIP messages, header fields and network addresses."""
