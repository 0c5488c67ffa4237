"""Notifications about finished executions, today by webhooks.

A delivery is stored in the transaction that finishes the execution, and beat sends it at least once, under an id that
is the same for every try. Nothing is sent inside a transaction.
Entry points: `webhooks.subscriptions`, `webhooks.deliveries.Deliverer`, `webhooks.delivery_list.list_deliveries`.
"""
