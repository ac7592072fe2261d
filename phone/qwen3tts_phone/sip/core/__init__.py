"""Settings, accounts and the user agent core."""
