"""`punctual import`: turns a crontab or the schedules of Celery beat into a manifest for `apply`.

Entry points: `crontab.read_crontab`, `celery_beat.read_fixture`, `celery_beat.read_app`, `importing.apply_import`.
"""
