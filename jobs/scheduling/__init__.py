"""When jobs run: schedules, their edits, firing, overlap, calendars and backfills.

Every instant of an enabled schedule gets exactly one execution or one record of why it has none. An edit first fires
the due instants, under the locks of the schedules.
Entry points: `firing.fire_due_schedules`, `schedules`, `editing.plan_edits`, `backfill.advance_backfills`.
"""
