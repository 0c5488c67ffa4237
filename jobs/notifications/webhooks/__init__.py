"""Webhooks: subscriptions, allowed addresses, payload, signature, sending and retries."""
