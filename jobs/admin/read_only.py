"""Pages that only look: states have one writer, and it is not a form."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from django.contrib import admin
from django.contrib.auth import get_permission_codename
from django.db.models import Model
from django.http import HttpRequest

Row = TypeVar("Row", bound=Model)

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin
    TabularInline = admin.TabularInline
else:
    # Django's own classes are not generic at run time.
    class _Subscriptable:
        def __class_getitem__(cls, _: object) -> type:
            return cls

    class ModelAdmin(_Subscriptable, admin.ModelAdmin):
        pass

    class TabularInline(_Subscriptable, admin.TabularInline):
        pass


class ReadOnlyAdmin(ModelAdmin[Row]):
    # Counting a table of millions for a caption costs more than the page.
    show_full_result_count = False
    list_per_page = 50

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Row | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Row | None = None) -> bool:
        return False

    def has_operate_permission(self, request: HttpRequest) -> bool:
        """For actions: who may change such rows may do so, through the services that write them."""
        return request.user.has_perm(f"{self.opts.app_label}.{get_permission_codename('change', self.opts)}")


class ReadOnlyInline(TabularInline[Row, Row]):
    extra = 0
    can_delete = False

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> list[str]:
        # Django's forms refuse fields that are not editable, even where nothing is edited.
        return [str(name) for name in self.fields or ()]

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False
