"""Strict YAML: values with their line numbers, without surprising types and without alias bombs.

Only true and false are booleans and only decimal digits are numbers; dates, `on` and `010` are text. Duplicate keys are
refused, and so are files whose aliases expand to too many values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from punctual_client.errors import UsageError

if TYPE_CHECKING:
    import yaml

MAX_FILE_BYTES = 1024 * 1024
MAX_VALUES = 100_000
MAX_DEPTH = 32
MAX_NUMBER_CHARS = 15
_PREFIX = "tag:yaml.org,2002:"
INVALID_CHARACTERS = re.compile("[\0\ud800-\udfff]")

NodePath = tuple[str | int, ...]


_SCALAR_TYPES = {
    f"{_PREFIX}{name}": (re.compile(rf"(?:{form})\Z"), first)
    for name, form, first in (
        ("null", r"~|null|", ["~", "n", ""]),
        ("bool", r"true|false", ["t", "f"]),
        ("int", r"[-+]?(?:0|[1-9][0-9]*)", list("-+0123456789")),
        ("float", r"[-+]?[0-9]+\.[0-9]+(?:[eE][-+][0-9]+)?", list("-+0123456789")),
        ("merge", r"<<", ["<"]),
    )
}


@dataclass(frozen=True)
class Document:
    file: str
    value: object
    lines: Mapping[NodePath, int]

    def where(self, path: NodePath) -> str:
        """Return `FILE:LINE` of a value, or of the nearest value that encloses it."""
        while path not in self.lines:
            path = path[:-1]
        return f"{self.file}:{self.lines[path]}"


def read_documents(content: bytes, file: str) -> list[Document]:
    # Importing yaml takes as long as a short command.
    import yaml  # noqa: PLC0415

    class Loader(yaml.SafeLoader):
        """Uses our own rules for the types of unquoted scalars."""

        yaml_implicit_resolvers = {}

    for tag, (form, first) in _SCALAR_TYPES.items():
        Loader.add_implicit_resolver(tag, form, first)
    if len(content) > MAX_FILE_BYTES:
        raise UsageError(f"{file} has more than {MAX_FILE_BYTES} bytes: split it.")
    try:
        nodes = list(yaml.compose_all(content.decode("utf-8"), Loader=Loader))
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not UTF-8 text.") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UsageError(f"{file}:{line}: This is not YAML: {error.problem or error.context}.") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        reason = getattr(error, "reason", None) or "it contains invalid characters"
        raise UsageError(f"{file} is not YAML: {reason}.") from None
    except RecursionError:
        raise UsageError(f"{file} is nested too deeply.") from None
    return [_AliasExpander(file).document(node) for node in nodes if not _is_empty(node)]


def _node_kind(node: yaml.Node) -> str:
    """Return scalar, sequence or mapping."""
    return str(getattr(node, "id", ""))


def _is_empty(node: yaml.Node | None) -> bool:
    return node is None or (node.tag == f"{_PREFIX}null" and node.value == "")


class _AliasExpander:
    """Converts nodes, which aliases share, to values, and limits how many they expand to."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._lines: dict[NodePath, int] = {}
        self._merges = 0

    def document(self, node: yaml.Node) -> Document:
        return Document(self._file, self._value(node, ()), self._lines)

    def _refusal(self, node: yaml.Node, message: str) -> UsageError:
        return UsageError(f"{self._file}:{node.start_mark.line + 1}: {message}")

    def _value(self, node: yaml.Node, path: NodePath) -> object:
        self._lines[path] = node.start_mark.line + 1
        if len(self._lines) > MAX_VALUES:
            raise self._refusal(node, f"There are more than {MAX_VALUES} values here, with aliases expanded.")
        if len(path) > MAX_DEPTH:
            raise self._refusal(node, f"This is nested more than {MAX_DEPTH} levels deep, or contains itself.")
        if _node_kind(node) != "scalar" and node.tag not in (f"{_PREFIX}map", f"{_PREFIX}seq"):
            raise self._refusal(node, f"The tag {node.tag!r} does not fit here: write the value without it.")
        if _node_kind(node) == "mapping":
            return {key: self._value(value, (*path, key)) for key, value in self._pairs(node).items()}
        if _node_kind(node) == "sequence":
            return [self._value(item, (*path, index)) for index, item in enumerate(node.value)]
        return self._scalar(node)

    def _pairs(self, node: yaml.Node, depth: int = 0) -> dict[str, yaml.Node]:
        own: dict[str, yaml.Node] = {}
        merged: dict[str, yaml.Node] = {}
        for key, value in node.value:
            if key.tag == f"{_PREFIX}merge":
                merged = {**self._merged(value, depth), **merged}
                continue
            if _node_kind(key) != "scalar":
                raise self._refusal(key, "A key must be a word.")
            if key.value in own:
                raise self._refusal(key, f"{key.value!r} appears twice.")
            own[self._text(key)] = value
        return {**merged, **own}

    def _merged(self, node: yaml.Node, depth: int) -> dict[str, yaml.Node]:
        sources = node.value if _node_kind(node) == "sequence" else [node]
        found: dict[str, yaml.Node] = {}
        for source in sources:
            self._merges += 1 + len(source.value)
            if self._merges > MAX_VALUES:
                raise self._refusal(node, f"More than {MAX_VALUES} values are merged here, with aliases expanded.")
            if _node_kind(source) != "mapping" or depth > MAX_DEPTH or len(sources) > MAX_DEPTH:
                raise self._refusal(node, "<< takes an alias of a mapping, such as *name.")
            found = {**self._pairs(source, depth + 1), **found}
        return found

    def _scalar(self, node: yaml.Node) -> object:
        text, tag = self._text(node), node.tag.removeprefix(_PREFIX)
        if tag in ("str", "merge"):
            return text
        if node.tag not in _SCALAR_TYPES or not _SCALAR_TYPES[node.tag][0].match(text):
            raise self._refusal(node, f"The tag {node.tag!r} does not fit here: write the value without it.")
        if tag in ("null", "bool"):
            return None if tag == "null" else text == "true"
        if len(text) > MAX_NUMBER_CHARS or not math.isfinite(float(text)):
            raise self._refusal(node, "The number is too long.")
        return int(text) if tag == "int" else float(text)

    def _text(self, node: yaml.Node) -> str:
        text: str = node.value
        if INVALID_CHARACTERS.search(text):
            raise self._refusal(node, "This contains characters that are invalid in text.")
        return text


@dataclass(frozen=True)
class YamlValue:
    """A value of a document, with accessors that check its type."""

    document: Document
    value: object
    path: NodePath = ()

    @property
    def where(self) -> str:
        return self.document.where(self.path)

    def refusal(self, message: str) -> UsageError:
        location = ".".join(str(part) for part in self.path)
        return UsageError(f"{self.where}: {f'{location}: ' if location else ''}{message}")

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise self.refusal(
                "This must be text: put it in quotes." if self.value is not None else "A text is missing."
            )
        return self.value

    def whole(self) -> int:
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            raise self.refusal("This must be a whole number.")
        return self.value

    def number(self) -> float:
        if not isinstance(self.value, int | float) or isinstance(self.value, bool):
            raise self.refusal("This must be a number.")
        return self.value

    def boolean(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.refusal("This must be true or false.")
        return self.value

    def entries(self) -> Iterator[YamlValue]:
        if not isinstance(self.value, list):
            raise self.refusal("This must be a list.")
        return (YamlValue(self.document, item, (*self.path, index)) for index, item in enumerate(self.value))

    def parts(self) -> dict[str, YamlValue]:
        if not isinstance(self.value, dict):
            raise self.refusal("This must have keys and values.")
        return {key: YamlValue(self.document, value, (*self.path, key)) for key, value in self.value.items()}

    def fields(self, known: Collection[str]) -> dict[str, YamlValue]:
        """Return the parts of a mapping; refuse unknown keys."""
        found = self.parts()
        for name, place in found.items():
            if name not in known:
                raise place.refusal(f"There is no such field; use one of: {', '.join(known)}.")
        return found
