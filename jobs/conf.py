"""What the control plane assumes about time and size, in one place, with units in the names."""

from __future__ import annotations

# An instant this late still fires whatever its catch-up policy: a busy beat is not downtime.
CATCH_UP_GRACE_SECONDS = 10.0

# One transaction settles at most this many schedules, and this many instants of each.
FIRE_BATCH_SCHEDULES = 500
FIRE_BATCH_INSTANTS_EACH = 200
# Up to this many instants that a batch drops of one schedule are rows of their own, more are one range.
MAX_MISSED_ROWS = 10
# How many executions of a job may wait before new firings are skipped.
MAX_BACKLOG = 1000

# One step of the backfills looks at this many instants, and a job's backfill goes on while fewer executions than this
# of the job are unfinished: past work never crowds out the present.
BACKFILL_BATCH_INSTANTS = 1000
BACKFILL_MAX_WAITING = 100
MAX_BACKFILL_INSTANTS = 50_000

PLACE_BATCH_EXECUTIONS = 2000
# What has been ready for this long and finds no room has a worker kept for it.
RESERVE_AFTER_SECONDS = 60.0
# One sweep looks at this many blocked executions, and the next one goes on after them.
SWEEP_BATCH_EXECUTIONS = 1000
PUBLISH_BATCH_MESSAGES = 500

# A message that no worker has taken is sent again after this long, then after twice as long, and so on.
REPUBLISH_SECONDS = 2.0
# After this long on a worker with free slots an execution goes back to be placed anew.
UNCLAIMED_SECONDS = 30.0

# System tasks are sent by one beat at a time; when it dies, another takes over after this long.
DUTY_LEASE_SECONDS = 6.0
SYSTEM_TICK_SECONDS = 1.0
SYSTEM_TASKS_A_TICK = 1000
REAP_SECONDS = 1.0
# So many passes without a stamp are a gap, after which leases are given time to be renewed.
REAP_GAP_PASSES = 5

# A run that its worker does not list this long after it was claimed is lost: the answer to the claim never came.
UNLISTED_SECONDS = 30.0

# How often an execution may be lost with its worker before it is taken for the cause.
MAX_TIMES_LOST = 5

# How often, and at most how far apart, an execution whose program cannot be fetched is tried without using up a try.
MAX_UNAVAILABLE_ATTEMPTS = 30
MAX_UNAVAILABLE_BACKOFF_SECONDS = 60.0

# Limits on what a request may ask for.
MAX_SCRIPT_BYTES = 1024 * 1024
MAX_ARTIFACT_BYTES = 5 * 1024**3
MAX_STDIN_BYTES = 1024 * 1024
MAX_INPUTS = 100
MAX_SECRETS_PER_JOB = 50
MIN_SECRET_BYTES = 4
MAX_SECRET_BYTES = 64 * 1024
# Of all secrets of a run: they go into its environment, and over HTTP into one answer with those of others.
MAX_SECRET_BYTES_A_RUN = 512 * 1024
RESEAL_BATCH_SECRETS = 100
MAX_ARGS = 256
MAX_ENV = 256
MAX_RESOURCES = 16
MAX_TEXT_BYTES = 64 * 1024
MAX_TIMEOUT_SECONDS = 7 * 24 * 3600.0
MAX_SCHEDULES_PER_JOB = 50
MAX_DEPENDENCIES_PER_JOB = 100
MAX_BULK_JOBS = 1000

# For so long a request with an Idempotency-Key may be sent again. No answer that is allowed comes near this size.
ANSWER_KEPT_SECONDS = 24 * 3600.0
MAX_STORED_ANSWER_BYTES = 4 * 1024 * 1024

# What an attempt may write, over HTTP: a worker's own cap, and what one request that is said twice may hold.
MAX_LOG_BYTES = (64 + 8) * 1024**2
MAX_LOG_CHUNKS = 1_000_000

# An append that was on its way when the attempt ended may be stored this much later: then the log is complete.
LOG_COMPLETE_AFTER_SECONDS = 15.0
# A search answers with what it has found after this long, and where to go on.
LOG_SEARCH_SECONDS = 0.2
# One object of the archive holds so many logs, and about so many bytes, at most.
LOG_PACK_LOGS = 1000
LOG_PACK_BYTES = 32 * 1024**2
# A log that could not be read is tried again after this long, so that it does not hold up the others.
LOG_ARCHIVE_RETRY_SECONDS = 3600.0

# What a run may leave behind.
MAX_OUTPUT_FILES = 1000
MAX_OUTPUT_BYTES = 1024**3
MAX_RESULT_BYTES = 64 * 1024

# A question of a worker over HTTP waits this long for work or orders, and looks at the database this often meanwhile.
CLAIM_WAIT_SECONDS = 20.0
CLAIM_LOOK_SECONDS = 1.0
MAX_CLAIMS_AN_ANSWER = 100

# Who waits for news of an execution or its log is answered after this long at the latest, and Postgres is looked at
# this often meanwhile.
FOLLOW_WAIT_SECONDS = 20
FOLLOW_LOOK_SECONDS = 0.5
# A stream of events ends after this long, and whoever follows asks again after a moment; if it has nothing to say, it
# says so this often, and so notices when nobody listens any more.
FOLLOW_STREAM_SECONDS = 60.0
FOLLOW_AGAIN_SECONDS = 2.0
FOLLOW_HEARTBEAT_SECONDS = 5.0

# What an owner may have of what is kept in Postgres itself, where no quota counts bytes.
MAX_WEBHOOKS_PER_OWNER = 20
MAX_SECRETS_PER_OWNER = 1000
MAX_CALENDARS_PER_OWNER = 1000
MAX_MEMBERS_PER_TEAM = 1000
# A list of somebody's jobs follows one index for each of them.
MAX_TEAMS_PER_USER = 20
# One that is being sent and of which nothing is heard for this long is sent again.
WEBHOOK_LEASE_SECONDS = 60.0
# A webhook that nothing could be delivered to for this long is disabled.
WEBHOOK_FAILING_SECONDS = 3 * 24 * 3600.0
# So long deliveries are signed with the former secret, too.
WEBHOOK_ROTATION_SECONDS = 24 * 3600.0
MAX_WEBHOOK_TESTS_KEPT = 20

UPLOAD_URL_SECONDS = 15 * 60
DOWNLOAD_URL_SECONDS = 5 * 60
# What a worker is given to fetch has addresses that last longer the more of it there is, up to a bound.
SLOWEST_FETCH_BYTES_A_SECOND = 1_000_000
MAX_DOWNLOAD_URL_SECONDS = 12 * 3600
# What nobody has asked for this long, and no job refers to, is collected. Longer than any of these URLs.
ORPHAN_GRACE_SECONDS = 24 * 3600.0

# A token expires after at most this long, unless it never does, and its use is noted at most this often.
MAX_TOKEN_DAYS = 36_500
TOKEN_USE_SECONDS = 60.0
# What the clock of the rate limit, in microseconds, can still tell apart.
MAX_REQUESTS_PER_MINUTE = 10**6
# So many tries to log in may fail in a window. Behind a proxy all people come from one address.
LOGIN_WINDOW_SECONDS = 60
LOGIN_TRIES_A_USER_AND_ADDRESS = 10
LOGIN_TRIES_AN_ADDRESS = 60
# From addresses that a user has not logged in from for so long, all of them together.
LOGIN_TRIES_A_USER = 100
LOGIN_KNOWN_SECONDS = 30 * 24 * 3600
# Of an entry of the audit: what was before, and what was after, each.
MAX_AUDIT_BYTES = 16 * 1024

PARTITIONS_AHEAD_DAYS = 14
