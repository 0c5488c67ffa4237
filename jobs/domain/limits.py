"""Limits of time and size of the control plane, with units in their names."""

from __future__ import annotations

# An instant at most this late fires whatever its catch-up policy: a busy beat is not downtime.
CATCH_UP_GRACE_SECONDS = 10.0

# Per transaction: schedules, instants of each schedule, and instants in total.
FIRE_BATCH_SCHEDULES = 500
FIRE_BATCH_INSTANTS_PER_SCHEDULE = 200
FIRE_BATCH_INSTANTS = 1000
# Every n-th round starts with late instants, so that they fire even when more is due now than beat can fire.
FIRE_LATE_FIRST_ROUNDS = 10
# A batch that fails is halved to find the failing schedule, for at most FIRE_BISECT_SECONDS.
FIRE_LOCK_TIMEOUT_SECONDS = 0.25
FIRE_STATEMENT_TIMEOUT_SECONDS = 10.0
FIRE_BISECT_SECONDS = 5.0
# A command that must fire due instants first works off a backlog for this long, in separate transactions.
FIRE_BACKLOG_SECONDS = 5.0
# A batch that drops up to this many instants of a schedule stores a row for each; more become one range.
MAX_MISSED_ROWS = 10
# Firings of a job are skipped once this many of its executions wait.
MAX_BACKLOG = 1000

# Instants per backfill step. A backfill pauses while its job has this many unfinished executions, so that past work
# never crowds out current work.
BACKFILL_BATCH_INSTANTS = 1000
BACKFILL_MAX_UNFINISHED_EXECUTIONS = 100
MAX_BACKFILL_INSTANTS = 50_000

PLACE_BATCH_EXECUTIONS = 2000
# Candidates of a pool that one pass reads; the next pass continues after them.
PLACE_SCAN_EXECUTIONS = 10_000
# An execution that has been ready for this long without finding capacity gets a worker reserved.
RESERVE_AFTER_SECONDS = 60.0
# Blocked executions per sweep; the next sweep continues after them.
SWEEP_BATCH_EXECUTIONS = 1000
# Jobs whose lines of parked executions one sweep advances.
SWEEP_BATCH_JOBS = 500
PUBLISH_BATCH_MESSAGES = 500
# Executions that one transaction finishes, of one worker or overdue ones; a pass reads further pages for
# FINISH_PASS_SECONDS and searches a failing page for the failing row for FINISH_BISECT_SECONDS.
FINISH_BATCH_EXECUTIONS = 500
FINISH_PASS_SECONDS = 3.0
FINISH_BISECT_SECONDS = 4.0
# Dependents that finishing an execution creates and decides itself, and edges that it reads for that; beat handles
# the rest in pages of the same size.
FAN_OUT_BATCH_EXECUTIONS = 1000
FAN_OUT_MAX_EDGES = 10_000
FAN_OUT_MAX_LEVELS = 100
# Delay before retrying a dependent whose job is locked by another transaction.
FAN_OUT_LOCKED_RETRY_SECONDS = 1.0
# Delay before retrying an execution or a fan-out whose processing failed.
FAILED_ROW_RETRY_SECONDS = 60.0

# Delay before sending an unclaimed message again; doubles each time.
REPUBLISH_INITIAL_BACKOFF_SECONDS = 2.0
# An execution that a worker with free slots has not claimed for this long is placed again.
UNCLAIMED_TIMEOUT_SECONDS = 30.0

# Upper bound; the length itself is the setting PUNCTUAL_LEASE_SECONDS.
MAX_LEASE_SECONDS = 600.0
# One beat at a time sends system tasks; after its death another takes over within this time.
LEADER_LEASE_SECONDS = 6.0
# The leader lease for reaping lost workers and republishing messages is shorter, for a faster takeover.
RESCUE_LEASE_SECONDS = 3.0
SYSTEM_TICK_SECONDS = 1.0
MAX_SYSTEM_TASKS_PER_TICK = 1000
REAP_INTERVAL_SECONDS = 1.0
# Workers that one pass marks as lost, and whose work it takes back.
REAP_BATCH_WORKERS = 1000
# This many intervals without a stamp are a gap, after which workers get time to renew their leases.
REAP_GAP_PASSES = 5

# A run that its worker does not report this long after the claim is lost: the claim's response never arrived.
UNREPORTED_GRACE_SECONDS = 30.0

# An execution that was lost with its worker this often counts as the cause and fails.
MAX_LOST_ATTEMPTS = 5

# Attempts, and the longest delay between them, that an execution gets without using up tries while its program cannot
# be fetched.
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
# All secrets of a run go into its environment, and over HTTP into one response with those of other runs.
MAX_SECRET_BYTES_PER_RUN = 512 * 1024
RESEAL_BATCH_SECRETS = 100
MAX_ARGS = 256
MAX_ENV_VARIABLES = 256
MAX_RESOURCES = 16
MAX_TEXT_BYTES = 64 * 1024
MAX_TIMEOUT_SECONDS = 7 * 24 * 3600.0
MAX_SCHEDULES_PER_JOB = 50
MAX_DEPENDENCIES_PER_JOB = 100
MAX_BULK_JOBS = 1000

# How long a retried Idempotency-Key gets the stored response, whose size no allowed response comes near.
STORED_ANSWER_TTL_SECONDS = 24 * 3600.0
# How long the claim of a dead process blocks its key. A slower request keeps its claim unless another one wants it.
IDEMPOTENCY_CLAIM_SECONDS = 30.0
MAX_STORED_ANSWER_BYTES = 4 * 1024 * 1024

# Log of an attempt: the worker's own cap of 64 MB, plus one request that is sent twice.
MAX_LOG_BYTES = (64 + 8) * 1024**2
MAX_LOG_CHUNKS = 1_000_000
# Added to a chunk's size: the approximate overhead of its row.
LOG_CHUNK_OVERHEAD_BYTES = 128
# Stored of each log while its owner's storage is full.
FULL_OWNER_LOG_BYTES = 16 * 1024
# A storage check sums up the usage of at most STORAGE_CHECK_OWNERS: those with that many bytes or logs not archived
# yet, among STORAGE_CHECK_ACTIVE_OWNERS who run something.
STORAGE_CHECK_OWNERS = 200
STORAGE_CHECK_LOG_BYTES = 256 * 1024
STORAGE_CHECK_LOGS = 100
STORAGE_CHECK_ACTIVE_OWNERS = 2000

# An append in flight when the attempt finished may arrive this much later; then the log is complete.
LOG_COMPLETE_AFTER_SECONDS = 15.0
# A search returns its results and a position to continue from after this long.
LOG_SEARCH_TIMEOUT_SECONDS = 0.2
# Maximum size of one archive object.
LOG_PACK_LOGS = 1000
LOG_PACK_BYTES = 32 * 1024**2
# Delay before retrying an unreadable log, so that it does not hold up the others.
LOG_ARCHIVE_RETRY_SECONDS = 3600.0

# What a run may leave behind.
MAX_OUTPUT_FILES = 1000
MAX_OUTPUT_BYTES = 1024**3
MAX_RESULT_BYTES = 64 * 1024

# Long poll of a worker over HTTP: how long it waits for work or orders, and how often one read for all waiting claims
# of a process queries the database.
CLAIM_WAIT_SECONDS = 20.0
CLAIM_POLL_SECONDS = 1.0
# A worker that such a read found idle this recently waits again without a read of its own.
IDLE_WORKER_SECONDS = 10.0
MAX_CLAIMS_PER_RESPONSE = 100
# A worker polls once at a time, but may reconnect before web notices that the old connection is gone.
WAITING_CLAIMS_PER_WORKER = 4
# Shared by all followers that wait in a process: the more of them wait, the less often each polls. Wake-ups are not
# limited.
MAX_POLLS_PER_SECOND = 50.0

# Long poll for news of an execution or its log: longest wait, and interval of the queries.
FOLLOW_WAIT_SECONDS = 20
FOLLOW_POLL_SECONDS = 0.5
# An event stream ends after this long and its client reconnects. Heartbeats reveal clients that are gone.
FOLLOW_STREAM_SECONDS = 60.0
FOLLOW_RECONNECT_SECONDS = 2.0
FOLLOW_HEARTBEAT_SECONDS = 5.0
# Concurrent log downloads, in total and for each user.
MAX_LOG_DOWNLOADS = 256
MAX_LOG_DOWNLOADS_PER_USER = 16

# Objects per owner that live in Postgres, where no quota counts bytes.
MAX_WEBHOOKS_PER_OWNER = 20
MAX_SECRETS_PER_OWNER = 1000
MAX_CALENDARS_PER_OWNER = 1000
MAX_MEMBERS_PER_TEAM = 1000
# Listing a user's jobs reads one index range for each team.
MAX_TEAMS_PER_USER = 20
# A delivery whose sender has not reported for this long is sent again.
WEBHOOK_LEASE_SECONDS = 60.0
# A webhook without a successful delivery for this long is disabled.
WEBHOOK_DISABLE_AFTER_SECONDS = 3 * 24 * 3600.0
# Deliveries are also signed with the previous secret for this long.
WEBHOOK_ROTATION_SECONDS = 24 * 3600.0
MAX_STORED_WEBHOOK_PINGS = 20

UPLOAD_URL_SECONDS = 15 * 60
DOWNLOAD_URL_SECONDS = 5 * 60
# Download URLs of a run live longer the more it has to fetch, up to the maximum.
MIN_FETCH_BYTES_PER_SECOND = 1_000_000
MAX_DOWNLOAD_URL_SECONDS = 12 * 3600
# An artifact unused for this long and referenced by no job is collected. Longer than the lifetime of any URL.
ORPHAN_GRACE_SECONDS = 24 * 3600.0

# Longest lifetime of a token that expires, and resolution of its recorded use.
MAX_TOKEN_DAYS = 36_500
TOKEN_USE_RESOLUTION_SECONDS = 60.0
MAX_SECRETS_PER_TOKEN = 100
MAX_WORKERS_PER_TOKEN = 1000
# For each worker: more often than a supervisor restarts a worker that crashes at its start.
WORKER_REGISTRATIONS_A_MINUTE = 30
# A starting worker warns when its token expires within this time.
TOKEN_EXPIRY_WARNING_DAYS = 30
# The rate limiter's clock counts microseconds.
MAX_REQUESTS_PER_MINUTE = 10**6
# Failed logins allowed in a window. Behind a proxy all users share one address.
LOGIN_WINDOW_SECONDS = 60
MAX_LOGIN_TRIES_PER_USER_AND_ADDRESS = 10
MAX_LOGIN_TRIES_PER_ADDRESS = 60
# All addresses together from which the user has not logged in within LOGIN_KNOWN_ADDRESS_SECONDS.
MAX_LOGIN_TRIES_PER_USER = 100
LOGIN_KNOWN_ADDRESS_SECONDS = 30 * 24 * 3600
# Failed logins of a user from an address are counted for this long; the first, tenth, hundredth, … go into the audit.
LOGIN_FAILURE_WINDOW_SECONDS = 3600
# Of all users and addresses together, so that guessing cannot fill the audit log.
MAX_LOGIN_FAILURE_ENTRIES_PER_MINUTE = 60
# Of each snapshot (before, after) of an audit entry.
MAX_AUDIT_SNAPSHOT_BYTES = 16 * 1024

PARTITIONS_AHEAD_DAYS = 14
