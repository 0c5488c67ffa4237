"""Strict YAML: no guessed types, no duplicates, no alias bombs, line numbers everywhere."""

from __future__ import annotations

import pytest

from punctual_cli.apply.yaml_reading import MAX_FILE_BYTES, YamlValue, read_documents
from punctual_client.errors import UsageError


def read(text: str) -> object:
    (document,) = read_documents(text.encode(), "f.yaml")
    return document.value


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("on", "on"), ("no", "no"), ("Yes", "Yes"), ("True", "True"), ("true", True), ("false", False),
        ("010", "010"), ("0x10", "0x10"), ("1_000", "1_000"), ("1:30", "1:30"), ("10", 10), ("-3", -3), ("0", 0),
        ("1.5", 1.5), (".inf", ".inf"), (".5", ".5"), ("1e3", "1e3"), ("2030-01-31", "2030-01-31"),
        ("2030-01-31T09:00:00Z", "2030-01-31T09:00:00Z"), ("~", None), ("null", None), ("'null'", "null"),
        ("!!str 12", "12"), ("", None),
    ],
)  # fmt: skip
def test_only_plain_scalars_get_types_other_than_text(written: str, value: object) -> None:
    read_back = read(f"a: {written}")
    assert read_back == {"a": value}
    assert isinstance(read_back, dict)
    assert type(read_back["a"]) is type(value)


def test_several_documents_are_read_and_empty_ones_skipped() -> None:
    assert [each.value for each in read_documents(b"---\na: 1\n---\n---\nb: 2\n", "f")] == [{"a": 1}, {"b": 2}]
    assert read_documents(b"# nothing\n", "f") == []


def test_written_keys_override_merged_ones() -> None:
    value = read("x: &x {a: 1, b: 2}\ny: &y {b: 3, c: 4}\nz: {<<: [*x, *y], a: 9}\nw: {a: 5, <<: *y}")
    assert isinstance(value, dict)
    assert value["z"] == {"a": 9, "b": 2, "c": 4}
    assert value["w"] == {"a": 5, "b": 3, "c": 4}


LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)
)
MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 4)}]}}\n" for n in range(1, 25))


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ("a: 1\nb: 2\na: 3", "f.yaml:3: 'a' appears twice"),
        ("a: [1, 2", "f.yaml:1: This is not YAML"),
        ("a: 1\n b: 2", "f.yaml:2: This is not YAML"),
        ("a: *b", "f.yaml:1: This is not YAML"),
        ("a: !!python/object/apply:os.system [x]", "does not fit here"),
        ("a: !!python/name:os.system x", "does not fit here"),
        ("a: !!int x", "does not fit here"),
        ("a: !thing x", "does not fit here"),
        ("a: \0", "not YAML"),
        ('a: "\\0"', "f.yaml:1: This contains characters"),
        ('a: "\\ud800"', "characters"),
        ('? "\\0"\n: 1', "characters"),
        ("[1]: 2", "f.yaml:1: A key must be a word"),
        ("<<: 3", "<< takes an alias of a mapping"),
        ("a: 99999999999999999999", "too long"),
        ("a: 1.0e+999", "too long"),
        ("a: &a [*a]", "deep"),
        ("a: &a\n  <<: *a", "<< takes"),
        ("a: " + "[" * 2000, "f.yaml"),
        ("a: " + "[" * 200 + "]" * 200, "deep"),
        (LAUGHS, "aliases expanded"),
        (MERGES, "are merged here"),
        ("x" * (MAX_FILE_BYTES + 1), "more than"),
    ],
)
def test_ambiguous_hostile_or_oversized_yaml_is_refused(written: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=r"f\.yaml") as refused:
        read(written)
    assert sentence in str(refused.value)


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(UsageError, match="not UTF-8"):
        read_documents(b"a: \xff", "f")


def test_a_refusal_names_the_line_and_the_way_there() -> None:
    (document,) = read_documents(b"jobs:\n  - name: x\n    env:\n      PORT: 80\n", "f.yaml")
    (job,) = YamlValue(document, document.value).fields(("jobs",))["jobs"].entries()
    with pytest.raises(UsageError, match=r"f\.yaml:4: jobs\.0\.env\.PORT: This must be text"):
        job.parts()["env"].parts()["PORT"].text()
    with pytest.raises(UsageError, match=r"f\.yaml:2: jobs\.0\.name: There is no such field; use one of: env"):
        job.fields(("env",))
