"""The composition root: settings, URLs, the Celery application and the local stack."""
