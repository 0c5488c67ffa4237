"""Scopes of tokens, when each was last used, and tokens that were revoked and stay as rows.

The check is replaced without a lock for as long as rows are read: added unvalidated, then validated by itself. Each
statement may be repeated, should the migration be interrupted; who cannot have its lock soon gives up, for everybody
who shows a token would wait behind it.
"""

from django.db import migrations, models

ALTER = """
SET LOCAL lock_timeout = '2s';
ALTER TABLE jobs_apitoken
  ADD COLUMN IF NOT EXISTS revoked_at timestamptz,
  ADD COLUMN IF NOT EXISTS last_used_at timestamptz,
  DROP CONSTRAINT IF EXISTS api_token_scope_known,
  DROP CONSTRAINT IF EXISTS api_token_scope_is_one,
  ADD CONSTRAINT api_token_scope_is_one CHECK (scope IN ('read', 'submit', 'operate', 'admin', 'worker')) NOT VALID
"""
RENAME = "UPDATE jobs_apitoken SET scope = 'admin' WHERE scope = 'all'"
VALIDATE = "SET LOCAL lock_timeout = '2s'; ALTER TABLE jobs_apitoken VALIDATE CONSTRAINT api_token_scope_is_one"

# What could do less than everything, or nothing any more, must not be able to do everything afterwards. Undone in this
# order from below: rows first, while no check stands in the way of either name, then the columns.
UNCHECK = "SET LOCAL lock_timeout = '2s'; ALTER TABLE jobs_apitoken DROP CONSTRAINT IF EXISTS api_token_scope_is_one"
NARROW = """
UPDATE jobs_apitoken
   SET scope = CASE scope WHEN 'worker' THEN 'worker' ELSE 'all' END,
       expires_at = CASE WHEN revoked_at IS NOT NULL OR scope IN ('read', 'submit', 'operate')
                         THEN least(expires_at, now()) ELSE expires_at END
"""
UNDO = """
SET LOCAL lock_timeout = '2s';
ALTER TABLE jobs_apitoken
  DROP COLUMN IF EXISTS revoked_at,
  DROP COLUMN IF EXISTS last_used_at,
  DROP CONSTRAINT IF EXISTS api_token_scope_known,
  ADD CONSTRAINT api_token_scope_known CHECK (scope IN ('all', 'worker'))
"""


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("jobs", "0033_listing")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(ALTER, UNDO),
                migrations.RunSQL(RENAME, NARROW),
                migrations.RunSQL(VALIDATE, UNCHECK),
            ],
            state_operations=[
                migrations.AddField("apitoken", "revoked_at", models.DateTimeField(editable=False, null=True)),
                migrations.AddField("apitoken", "last_used_at", models.DateTimeField(
                    editable=False, help_text="To the minute.", null=True
                )),
                migrations.AlterField("apitoken", "expires_at", models.DateTimeField(
                    blank=True, help_text="Empty: never.", null=True
                )),
                migrations.AlterField("apitoken", "scope", models.CharField(
                    choices=[
                        ("read", "Read"), ("submit", "Submit"), ("operate", "Operate"), ("admin", "Admin"),
                        ("worker", "Worker"),
                    ],
                    default="read",
                    help_text="Read, submit, operate, admin: each includes those before it."
                    " Worker: for `./punctual worker` alone.",
                    max_length=16,
                )),
                migrations.RemoveConstraint("apitoken", "api_token_scope_known"),
                migrations.AddConstraint("apitoken", models.CheckConstraint(
                    condition=models.Q(("scope__in", ["read", "submit", "operate", "admin", "worker"])),
                    name="api_token_scope_is_one",
                )),
            ],
        ),
    ]
