"""Triggers, cascades and storage parameters: what Django's models cannot express."""

from django.db import migrations

# Only retention may delete entries; it sets `punctual.prunes_audit` in its transaction.
AUDIT_APPEND_ONLY = """
CREATE FUNCTION punctual_keep_audit_entry() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND current_setting('punctual.prunes_audit', true) = 'on' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'Audit entries cannot be changed or deleted.' USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER audit_entry_kept BEFORE UPDATE OR DELETE ON jobs_auditentry
   FOR EACH ROW EXECUTE FUNCTION punctual_keep_audit_entry();
"""
NO_AUDIT_APPEND_ONLY = """
DROP TRIGGER audit_entry_kept ON jobs_auditentry;
DROP FUNCTION punctual_keep_audit_entry();
"""

# The transaction that finishes an execution announces it to webhooks, whichever statement finishes it. The triggers'
# conditions are evaluated before a function is called, so other changes of executions cost nothing. Ids are UUIDv7.
# The lock keeps the deletion of a webhook from failing the end of an execution.
ANNOUNCE_ENDS = """
CREATE FUNCTION jobs_announce_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- Without webhooks, this is all that an end costs.
    IF NOT EXISTS (SELECT FROM jobs_webhook) THEN
        RETURN NULL;
    END IF;
    INSERT INTO jobs_webhookdelivery (
        id, webhook_id, execution_id, event, state, attempts, tries_left, next_try_at, error, response, created_at)
    SELECT encode(set_bit(set_bit(overlay(
               uuid_send(gen_random_uuid())
               PLACING substring(int8send(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
               FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid,
           w.id, NEW.id, 'execution.' || NEW.state, 'pending', 0, 10, clock_timestamp(), '', '', clock_timestamp()
      FROM jobs_job j
      JOIN jobs_webhook w ON w.owner_id = j.owner_id
     WHERE j.id = NEW.job_id AND w.enabled AND NEW.state = ANY(w.events) AND (w.job_id IS NULL OR w.job_id = j.id)
       FOR KEY SHARE OF w;
    RETURN NULL;
END $$;
CREATE TRIGGER execution_ended AFTER UPDATE ON jobs_execution FOR EACH ROW
    WHEN (OLD.ended_at IS NULL AND NEW.ended_at IS NOT NULL) EXECUTE FUNCTION jobs_announce_end();
CREATE TRIGGER execution_never_ran AFTER INSERT ON jobs_execution FOR EACH ROW
    WHEN (NEW.ended_at IS NOT NULL) EXECUTE FUNCTION jobs_announce_end();
"""
NO_ANNOUNCE_ENDS = """
DROP TRIGGER execution_never_ran ON jobs_execution;
DROP TRIGGER execution_ended ON jobs_execution;
DROP FUNCTION jobs_announce_end();
"""

# Rows that may be inserted while what they belong to is being deleted go with it: Django's own cascade, which deletes
# what it has read before, would fail at the commit.
CASCADES = [
    ("jobs_storedanswer", "owner_id", "auth_user", "jobs_storedanswer_owner_id_6a725b5c_fk_auth_user_id"),
    ("jobs_membership", "user_id", "auth_user", "jobs_membership_user_id_cfe80136_fk_auth_user_id"),
    ("jobs_webhook", "job_id", "jobs_job", "jobs_webhook_job_id_fd069c72_fk_jobs_job_id"),
    ("jobs_webhookdelivery", "webhook_id", "jobs_webhook", "jobs_webhookdelivery_webhook_id_14e823cc_fk_jobs_webhook_id"),
    (
        "jobs_webhookdelivery",
        "execution_id",
        "jobs_execution",
        "jobs_webhookdelivery_execution_id_f88611f9_fk_jobs_execution_id",
    ),
]
CASCADE = """
ALTER TABLE {table} DROP CONSTRAINT {name}, ADD CONSTRAINT {name}
    FOREIGN KEY ({column}) REFERENCES {target} (id) {on_delete} DEFERRABLE INITIALLY DEFERRED
"""


def on_delete(action: str) -> str:
    return ";".join(
        CASCADE.format(table=table, column=column, target=target, name=name, on_delete=action)
        for table, column, target, name in CASCADES
    )


# Free space on the pages of hot tables keeps updates on the page of their row.
STORAGE = """
ALTER TABLE jobs_worker SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE jobs_schedule SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE jobs_execution SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
"""


class Migration(migrations.Migration):
    dependencies = [("jobs", "0001_initial")]

    operations = [
        migrations.RunSQL(AUDIT_APPEND_ONLY, NO_AUDIT_APPEND_ONLY),
        migrations.RunSQL(ANNOUNCE_ENDS, NO_ANNOUNCE_ENDS),
        migrations.RunSQL(on_delete("ON DELETE CASCADE"), on_delete("")),
        migrations.RunSQL(STORAGE, migrations.RunSQL.noop),
    ]
