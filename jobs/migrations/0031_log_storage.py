"""Chunks of logs are stored as they come, or compressed by lz4 where Postgres has it: pglz is slower than the runs."""

from django.db import migrations

STORAGE = """
DO $$
DECLARE part regclass;
BEGIN
    FOR part IN SELECT 'jobs_logchunk'::regclass UNION ALL
                SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'jobs_logchunk'::regclass LOOP
        BEGIN
            EXECUTE format('ALTER TABLE %s ALTER COLUMN data SET COMPRESSION lz4', part);
        EXCEPTION WHEN feature_not_supported OR invalid_parameter_value THEN
            EXECUTE format('ALTER TABLE %s ALTER COLUMN data SET STORAGE EXTERNAL', part);
        END;
    END LOOP;
END $$;
"""
STORAGE_BEFORE = """
DO $$
DECLARE part regclass;
BEGIN
    FOR part IN SELECT 'jobs_logchunk'::regclass UNION ALL
                SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'jobs_logchunk'::regclass LOOP
        EXECUTE format('ALTER TABLE %s ALTER COLUMN data SET STORAGE EXTENDED', part);
        EXECUTE format('ALTER TABLE %s ALTER COLUMN data SET COMPRESSION DEFAULT', part);
    END LOOP;
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("jobs", "0030_log_archive")]

    operations = [migrations.RunSQL(STORAGE, STORAGE_BEFORE)]
