"""Explanations why a host cannot isolate programs: one sentence with cause and remedy."""

from pathlib import Path

import pytest

from workers.sandbox.host import explain_failure


def _kernel(root: Path, **settings: str) -> Path:
    for name, value in settings.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")
    return root


@pytest.mark.parametrize(
    ("error", "settings", "cure"),
    [
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", {}, "unmask=ALL"),
        ("bwrap: Creating new namespace failed: No space left", {"user__max_user_namespaces": "0"}, "10000"),
        (
            "bwrap: No permissions to create new namespace",
            {"kernel__unprivileged_userns_clone": "0"},
            "kernel.unprivileged_userns_clone to 1",
        ),
        (
            "bwrap: setting up uid map: Permission denied",
            {"kernel__apparmor_restrict_unprivileged_userns": "1", "kernel__unprivileged_userns_clone": "1"},
            "AppArmor",
        ),
        ("bwrap: Creating new namespace failed: Operation not permitted", {}, "seccomp"),
        ("the worker is root and may not become uid 65534 (EPERM)", {}, "CAP_SETUID"),
        ("bwrap: something new", {}, "where bubblewrap works"),
    ],
)
def test_failure_explanation_names_the_cause(tmp_path: Path, error: str, settings: dict[str, str], cure: str) -> None:
    sentence = explain_failure(error, _kernel(tmp_path, **settings))
    assert cure in sentence
    assert error in sentence
    assert sentence.count(". ") == 0
