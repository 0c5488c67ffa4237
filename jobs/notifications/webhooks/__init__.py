"""Webhooks: subscriptions, allowed addresses, payload, signature, sending and retries.

Entry points: `subscriptions.create_webhook`, `deliveries.Deliverer`, `sending.send_webhook`.
"""
