"""Webhooks without a database; receivers are on loopback, in this process."""
