"""Authentication backend that derives model permissions from staff status, as the API does.

Staff operates Punctual's tables; superusers manage users. Granting Django's model permissions one by one would protect
nothing, since staff can do the same through the API. Other permissions, such as `jobs.use_network`, are granted as
usual.
"""

from __future__ import annotations

from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import AnonymousUser, User
from django.db.models import Model

from jobs.models.visibility import is_operator

MODEL_ACTIONS = frozenset({"view", "add", "change", "delete"})
OPERATOR_APPS = frozenset({"jobs", "django_celery_beat", "django_celery_results"})
# Quotas and teams refer to users.
OPERATOR_VIEW_PERMISSIONS = frozenset({"auth.view_user"})


class OperatorBackend(ModelBackend):
    def has_perm(self, user_obj: User | AnonymousUser, perm: str, obj: Model | None = None) -> bool:
        app, _, codename = perm.partition(".")
        if codename.partition("_")[0] not in MODEL_ACTIONS:
            return super().has_perm(user_obj, perm, obj)
        return is_operator(user_obj) and (app in OPERATOR_APPS or perm in OPERATOR_VIEW_PERMISSIONS)

    def has_module_perms(self, user_obj: User | AnonymousUser, app_label: str) -> bool:
        return is_operator(user_obj) and (app_label in OPERATOR_APPS or app_label == "auth")
