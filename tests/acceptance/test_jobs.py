"""Jobs, from the API to the sandbox and back, on real processes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from tests.support.stack import Stack
from tests.support.waiting import wait_for


def test_a_program_that_fails_shows_its_exit_code_and_both_streams(stack: Stack) -> None:
    job = stack.submit(name="fails", runtime="bash", script="echo out; echo err >&2; exit 7")
    execution = stack.wait_for_end(job)
    assert (execution["status"], execution["exit_code"], execution["reason"]) == ("failed", 7, "exit")
    chunks = stack.api.get(f"/executions/{execution['id']}/logs", params={"format": "json"}).json()["results"]
    assert {(c["stream"], c["text"]) for c in chunks} == {("stdout", "out\n"), ("stderr", "err\n")}


GIVEN = """
import os, sys, time
print(sys.argv[1:], os.environ["REGION"], os.environ["PUNCTUAL_ATTEMPT"], os.environ["PUNCTUAL_JOB_NAME"])
print(sys.stdin.read(), open("data/a.csv").read(), open("b.csv").read())
with open(os.environ["PUNCTUAL_PROGRESS"], "w") as file:
    print("nonsense\\n42.5 half of it", file=file, flush=True)
    time.sleep(2)
    print("100 done", file=file)
"""


def test_python_program_gets_its_inputs_and_reports_progress(stack: Stack) -> None:
    job = stack.submit(
        name="python",
        runtime="python",
        script=GIVEN,
        args=["--day", "1 2"],
        env={"REGION": "eu"},
        stdin="standard input",
        inputs=[
            {"path": "data/a.csv", "artifact": stack.upload(b"a")},
            {"path": "b.csv", "artifact": stack.upload(b"b")},
        ],
    )
    progress = stack.wait_for_progress(job)
    assert (progress["percent"], progress["message"]) == (42.5, "half of it")
    execution = stack.wait_for_end(job)
    assert (execution["status"], execution["progress"]["message"]) == ("succeeded", "done")
    assert stack.log(execution) == "['--day', '1 2'] eu 1 python\nstandard input a b\n"


def test_a_program_that_takes_too_long_is_stopped(stack: Stack) -> None:
    job = stack.submit(name="slow", runtime="bash", script="sleep 600", timeout_seconds=1)
    execution = stack.wait_for_end(job)
    assert (execution["status"], execution["reason"]) == ("timed_out", "timeout")


def test_a_program_that_takes_too_much_memory_is_stopped(stack: Stack) -> None:
    job = stack.submit(
        name="hungry",
        runtime="python",
        script="hoard = []\nwhile True: hoard.append(bytearray(10_000_000))",
        requirements={"memory_mb": 64},
    )
    execution = stack.wait_for_end(job)
    assert (execution["status"], execution["reason"]) == ("failed", "out_of_memory")


def test_a_failing_program_is_tried_again(stack: Stack) -> None:
    job = stack.submit(
        name="retries",
        runtime="bash",
        script='[ "$PUNCTUAL_ATTEMPT" = 3 ]',
        retry={"max_attempts": 3, "backoff_seconds": 0.1, "backoff_factor": 1},
    )
    execution = stack.wait_for_end(job)
    assert (execution["status"], execution["attempt"], execution["tries_used"]) == ("succeeded", 3, 3)


def test_every_kind_of_schedule_fires(stack: Stack) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=2)
    script = {"runtime": "bash", "script": "true"}
    at = stack.submit(name="at", **script, schedules=[{"at": soon.isoformat()}])
    every = stack.submit(name="every", **script, schedules=[{"every_seconds": 1}])
    cron = stack.submit(name="cron", **script, schedules=[{"cron": "* * * * *", "timezone": "Europe/Paris"}])

    (execution,) = wait_for(lambda: stack.executions(at), "the instant came", seconds=20)
    assert datetime.fromisoformat(execution["scheduled_for"]) == soon
    fired = wait_for(
        lambda: found if len(found := stack.executions(every)) >= 3 else [], "three intervals passed", seconds=30
    )
    instants = [datetime.fromisoformat(e["scheduled_for"]) for e in fired]
    assert {later - earlier for earlier, later in pairwise(instants)} == {timedelta(seconds=1)}
    (execution,) = wait_for(lambda: stack.executions(cron), "the minute came", seconds=75)
    assert datetime.fromisoformat(execution["scheduled_for"]).second == 0

    for job in (every, cron):
        assert stack.api.put(f"/jobs/{job['id']}/cancel").status_code == 200
    count = len(stack.executions(every))
    assert stack.api.get(f"/jobs/{every['id']}").json()["status"] == "cancelled"
    wait_for(lambda: not [e for e in stack.executions(every) if e["status"] in {"ready", "queued", "running"}], "ended")
    assert len(stack.executions(every)) == count


def test_cancel_stops_a_running_program(stack: Stack) -> None:
    job = stack.submit(name="endless", runtime="bash", script="echo $$; sleep 600")
    (execution,) = wait_for(lambda: [e for e in stack.executions(job) if e["status"] == "running"], "it runs")
    assert stack.api.put(f"/executions/{execution['id']}/cancel").status_code in {200, 202}
    assert stack.wait_for_end(job)["status"] == "cancelled"
