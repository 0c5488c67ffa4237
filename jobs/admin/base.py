"""Base classes of read-only admin pages; state is written by services, never by a form."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from django.contrib import admin, messages
from django.contrib.auth import get_permission_codename
from django.core.exceptions import ObjectDoesNotExist
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from jobs.domain.errors import Conflict, InvalidInput, NotFound

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
    # Counting millions of rows costs more than the page.
    show_full_result_count = False
    list_per_page = 50

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Row | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Row | None = None) -> bool:
        return False

    def has_operate_permission(self, request: HttpRequest) -> bool:
        """Permit actions, which call services, to users who may change these rows."""
        return request.user.has_perm(f"{self.opts.app_label}.{get_permission_codename('change', self.opts)}")

    def run_for_each(
        self,
        request: HttpRequest,
        rows: QuerySet[Row],
        command: Callable[[Row], object],
        describe: Callable[[Row], str] = lambda row: "",
    ) -> int:
        """Run a command for each row, warn about each one it rejects, and return how many succeeded."""
        count = 0
        for row in rows:
            try:
                command(row)
                count += 1
            except (Conflict, NotFound, ObjectDoesNotExist) as error:
                self.message_user(request, f"{describe(row)}{error}", messages.WARNING)
        return count


class ReadOnlyInline(TabularInline[Row, Row]):
    extra = 0
    can_delete = False

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> list[str]:
        # Django's forms reject non-editable fields even on read-only pages.
        return [str(name) for name in self.fields or ()]

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


class ServiceWrittenAdmin(ModelAdmin[Row]):
    """Editable page whose services validate, write and audit the changes."""

    recorded_by_services = True

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            return super().changeform_view(request, *args, **kwargs)
        except (InvalidInput, Conflict) as error:
            where = f"{error.field}: " if isinstance(error, InvalidInput) else ""
            self.message_user(request, f"Not saved. {where}{error}", messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())
