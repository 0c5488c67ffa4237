"""The composition root: settings, URLs, the Celery application and the local stack.

Entry points: `settings.environment.Environment`, `urls`, `asgi`, `celery`, `localstack`.
"""
