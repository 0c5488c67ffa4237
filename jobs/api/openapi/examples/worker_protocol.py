"""Example requests and responses of the worker protocol, for the same execution."""

from __future__ import annotations

from jobs.api.openapi.examples.common import CREATED_AT, EXECUTION, JOB, PROGRAM_SHA256, UPLOAD, WORKER, Example

_HOLD: Example = {"worker_id": WORKER, "incarnation": 1, "attempt": 1}
_HELD: Example = {"execution_id": EXECUTION, "attempt": 1}
_FILE: Example = {"size": 11, "sha256": PROGRAM_SHA256}

WORKER_REQUESTS: dict[str, dict[str, Example]] = {
    "RegistrationInput": {
        "A small machine": {
            "name": "machine-7",
            "instance": "5f0c7d52-6a4e-4f0e-9a70-0f4b8c4f7a11",
            "host": "machine-7.example",
            "slots": 4,
            "cpu": 4,
            "memory_mb": 8192,
            "disk_mb": 20_000,
            "capabilities": ["bash", "python"],
            "resources": {"gpu": 1},
        }
    },
    "HeartbeatInput": {
        "One run": {
            "incarnation": 1,
            "held": [_HELD],
            "usage": {"runs": 1, "taken": 12, "load": 0.7, "memory_available_mb": 5120},
        }
    },
    "ClaimInput": {"An idle worker": {"incarnation": 1, "held": [], "wait_seconds": 20}},
    "DrainInput": {"By staff": {}, "By the worker": {"incarnation": 1}},
    "IncarnationInput": {"Deregister": {"incarnation": 1}},
    "StartInput": {
        "With the sandbox's receipt": {**_HOLD, "receipt": {"bubblewrap": "0.11.0", "cgroup": "v2", "network": False}}
    },
    "LogInput": {
        "A line and the progress": {
            **_HOLD,
            "progress": {"percent": 40, "message": "rows 1 to 480"},
            "chunks": [
                {"sequence": 0, "stream": "stdout", "at": "2030-01-31T02:00:00.120Z", "base64": "cmVwb3J0IG9mIGV1Cg=="}
            ],
        }
    },
    "OutputInput": {"A file": {**_HOLD, **_FILE}},
    "CompleteInput": {
        "Success": {
            **_HOLD,
            "reason": "exit",
            "exit_code": 0,
            "result": {"rows": 1204},
            "cpu_seconds": 12.4,
            "peak_memory_bytes": 88_604_672,
        },
    },
}
WORKER_OUTPUTS: dict[str, Example] = {
    "TermsOutput": {
        "protocol": 2,
        "lease_seconds": 30.0,
        "renew_seconds": 5.0,
        "claim_wait_seconds": 20.0,
        "token_expires_at": "2031-01-30T16:20:11.402118Z",
    },
    "RegistrationOutput": {"worker_id": WORKER, "incarnation": 1, "lease_seconds": 30.0},
    "OrdersOutput": {"orders": [{**_HELD, "cancelled": True}], "lease_seconds": 30.0},
    "WorkOutput": {
        "executions": [
            {
                **_HELD,
                "job_id": JOB,
                "job_name": "nightly-report",
                "run_id": EXECUTION,
                "scheduled_for": "2030-01-31T02:00:00Z",
                "claimed_at": "2030-01-31T02:00:00.034592Z",
                "runtime": "python",
                "args": ["--region", "eu"],
                "env": {"FORMAT": "csv"},
                "cpu": 0.5,
                "memory_mb": 256,
                "disk_mb": 64,
                "timeout_seconds": 600.0,
                "seconds_left": None,
                "network": False,
                "program": {**_FILE, "url": "https://store.example/punctual/artifacts/5dbad7dd?X-Amz-Signature=…"},
                "inputs": [],
                "secrets": [],
            }
        ],
        "orders": [],
    },
    "UploadOutput": UPLOAD,
    "CompletionOutput": {"execution_id": EXECUTION, "job_id": JOB, "run_id": EXECUTION, "status": "succeeded"},
    "WorkerOutput": {
        "id": WORKER,
        "name": "machine-7",
        "pool": "default",
        "host": "machine-7.example",
        "status": "online",
        "incarnation": 1,
        "lease_until": "2030-01-31T02:00:55.391732Z",
        "capabilities": ["bash", "python"],
        "slots": 4,
        "cpu": 4.0,
        "memory_mb": 8192,
        "disk_mb": 20_000,
        "resources": {"gpu": 1},
        "transport": "rest",
        "refusal": "",
        "usage": {
            "runs": 1,
            "taken": 12,
            "load": 0.7,
            "memory_available_mb": 5120,
            "at": "2030-01-31T02:00:25.391733Z",
        },
        "details": {"bubblewrap": "0.11.0", "cgroups": "v2", "cpus": 4, "network": False},
        "registered_at": CREATED_AT,
    },
}
