"""Retries, deadlines and dead letters on real processes."""

from __future__ import annotations

from tests.support.stack import Stack
from tests.support.waiting import wait_for


def test_a_program_is_tried_again_for_the_codes_and_signals_that_the_policy_names(stack: Stack) -> None:
    job = stack.submit(
        name="picky",
        runtime="bash",
        script="case $PUNCTUAL_ATTEMPT in 1) exit 75;; 2) kill -TERM $$;; *) exit 1;; esac",
        retry={"max_attempts": 9, "backoff_seconds": 0.2, "jitter": 1, "on_exit_codes": [75, 143]},
    )
    execution = stack.wait_for_end(job)
    assert (execution["status"], execution["exit_code"], execution["tries_used"]) == ("failed", 1, 3)
    attempts = stack.api.get(f"/executions/{execution['id']}/attempts").json()["results"]
    assert [(a["exit_code"], a["signal"]) for a in attempts] == [(75, None), (None, 15), (1, None)]


def test_a_dead_letter_is_redriven_once_its_program_is_mended(stack: Stack) -> None:
    job = stack.submit(name="mended", runtime="bash", script="exit 7")
    letter = stack.wait_for_end(job)
    listed = stack.api.get("/dead-letters", params={"job_id": job["id"]}).json()["results"]
    assert [each["id"] for each in listed] == [letter["id"]]

    assert stack.api.patch(f"/jobs/{job['id']}", json={"script": "echo mended"}).status_code == 200
    made = stack.api.post(f"/dead-letters/{letter['id']}/redrive").json()

    def ended() -> dict[str, object]:
        shown: dict[str, object] = stack.api.get(f"/executions/{made['id']}").json()
        return shown if shown["ended_at"] else {}

    again = wait_for(ended, "the redriven one ended")
    assert (again["status"], again["retry_of"], again["scheduled_for"]) == (
        "succeeded",
        letter["id"],
        letter["scheduled_for"],
    )
    kept = stack.api.get(f"/executions/{letter['id']}").json()
    assert (kept["status"], kept["exit_code"], kept["dead_letter"]) == ("failed", 7, "redriven")


def test_deadline_ends_running_and_waiting_executions(stack: Stack) -> None:
    running = stack.submit(
        name="long", runtime="bash", script="sleep 600", deadline_seconds=20, retry={"max_attempts": 9}
    )
    waiting = stack.submit(
        name="homeless", runtime="bash", script="true", deadline_seconds=2, requirements={"capabilities": ["nowhere"]}
    )
    for job, attempts in ((running, 1), (waiting, 0)):
        execution = stack.wait_for_end(job)
        outcome = (execution["status"], execution["reason"], execution["attempt"])
        made = stack.api.get(f"/executions/{execution['id']}/attempts").json()["results"]
        assert outcome == ("timed_out", "deadline", attempts), (execution, made)
