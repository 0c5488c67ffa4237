"""Indexes that are built beside what goes on, by migrations that may be interrupted and repeated."""

from django.contrib.postgres.operations import AddIndexConcurrently

IS_VALID = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)"


class AddIndex(AddIndexConcurrently):
    """What was built stays, and what a build left unfinished is built anew."""

    def database_forwards(self, app_label, schema_editor, from_state, to_state):  # type: ignore[no-untyped-def]
        name = schema_editor.quote_name(self.index.name)
        with schema_editor.connection.cursor() as cursor:
            cursor.execute(IS_VALID, [name])
            found = cursor.fetchone()
        if found == (True,):
            return
        if found is not None:
            schema_editor.execute(f"DROP INDEX CONCURRENTLY {name}")
        super().database_forwards(app_label, schema_editor, from_state, to_state)
