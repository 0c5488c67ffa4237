-- duties.hold_duty. By primary key. Compare-and-set: mine already, or nobody's any more.
INSERT INTO jobs_beatlease AS held (duty, holder, lease_until)
VALUES (%(duty)s, %(holder)s, clock_timestamp() + make_interval(secs => %(lease_seconds)s))
    ON CONFLICT (duty) DO UPDATE SET holder = excluded.holder, lease_until = excluded.lease_until
 WHERE held.holder = excluded.holder OR held.lease_until < clock_timestamp()
