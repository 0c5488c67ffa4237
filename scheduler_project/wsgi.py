"""What the web server runs."""

from __future__ import annotations

import os

from django.core.wsgi import get_wsgi_application

from scheduler_project.checks import refuse_insecure_start

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "scheduler_project.settings")
refuse_insecure_start()

application = get_wsgi_application()
