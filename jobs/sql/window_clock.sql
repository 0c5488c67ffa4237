-- due_window.DatabaseClock.
SELECT clock_timestamp()
