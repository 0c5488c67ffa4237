"""Settings for tools that read them without running anything: the type checker."""

import os

os.environ.setdefault("PUNCTUAL_ENV", "development")
os.environ.setdefault("DATABASE_URL", "postgres://nobody@127.0.0.1/nothing")
os.environ.setdefault("REDIS_URL", "redis://127.0.0.1/0")
os.environ.setdefault("S3_BUCKET", "nothing")

from scheduler_project.settings import *  # noqa: F403
