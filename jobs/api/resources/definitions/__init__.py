"""Routes of what users define: jobs, schedules, calendars and backfills."""
