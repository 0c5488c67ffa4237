"""YAML as values, each with the line that it stands on: nothing is guessed, nothing grows beyond what was written.

Only true and false are truth values and only decimal digits are numbers; dates, `on` and `010` are text. A key that
comes twice is refused, and so is a file whose aliases unfold into more than a person would write.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cli.errors import UsageMistakeError

if TYPE_CHECKING:
    import yaml

MOST_BYTES = 1024 * 1024
MOST_VALUES = 100_000
DEEPEST = 32
MOST_DIGITS = 15
_PREFIX = "tag:yaml.org,2002:"
UNPRINTABLE = re.compile("[\0\ud800-\udfff]")

Path = tuple[str | int, ...]


_FORMS = {
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
    lines: Mapping[Path, int]

    def where(self, path: Path) -> str:
        """`FILE:LINE` of a part, or of the nearest one around it."""
        while path not in self.lines:
            path = path[:-1]
        return f"{self.file}:{self.lines[path]}"


def read_documents(content: bytes, file: str) -> list[Document]:
    # Reading the module takes as long as a short command does.
    import yaml  # noqa: PLC0415

    class Loader(yaml.SafeLoader):
        """With rules of its own for what is not quoted."""

        yaml_implicit_resolvers = {}

    for tag, (form, first) in _FORMS.items():
        Loader.add_implicit_resolver(tag, form, first)
    if len(content) > MOST_BYTES:
        raise UsageMistakeError(f"{file} has more than {MOST_BYTES} bytes: make several files of it.")
    try:
        nodes = list(yaml.compose_all(content.decode("utf-8"), Loader=Loader))
    except UnicodeDecodeError:
        raise UsageMistakeError(f"{file} is not UTF-8 text.") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UsageMistakeError(f"{file}:{line}: This is not YAML: {error.problem or error.context}.") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        reason = getattr(error, "reason", None) or "it has characters that are none"
        raise UsageMistakeError(f"{file} is not YAML: {reason}.") from None
    except RecursionError:
        raise UsageMistakeError(f"{file} is nested too deeply.") from None
    return [_Unfolding(file).document(node) for node in nodes if not _is_nothing(node)]


def _kind(node: yaml.Node) -> str:
    """scalar, sequence or mapping."""
    return str(getattr(node, "id", ""))


def _is_nothing(node: yaml.Node | None) -> bool:
    return node is None or (node.tag == f"{_PREFIX}null" and node.value == "")


class _Unfolding:
    """From nodes, which aliases share, to values: counted, for they may be many more."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._lines: dict[Path, int] = {}
        self._merges = 0

    def document(self, node: yaml.Node) -> Document:
        return Document(self._file, self._value(node, ()), self._lines)

    def _refusal(self, node: yaml.Node, sentence: str) -> UsageMistakeError:
        return UsageMistakeError(f"{self._file}:{node.start_mark.line + 1}: {sentence}")

    def _value(self, node: yaml.Node, path: Path) -> object:
        self._lines[path] = node.start_mark.line + 1
        if len(self._lines) > MOST_VALUES:
            raise self._refusal(node, f"There are more than {MOST_VALUES} values here, aliases unfolded.")
        if len(path) > DEEPEST:
            raise self._refusal(node, f"This is nested more than {DEEPEST} deep, or holds itself.")
        if _kind(node) != "scalar" and node.tag not in (f"{_PREFIX}map", f"{_PREFIX}seq"):
            raise self._refusal(node, f"The tag {node.tag!r} does not fit here: write the value without it.")
        if _kind(node) == "mapping":
            return {key: self._value(value, (*path, key)) for key, value in self._pairs(node).items()}
        if _kind(node) == "sequence":
            return [self._value(item, (*path, index)) for index, item in enumerate(node.value)]
        return self._scalar(node)

    def _pairs(self, node: yaml.Node, depth: int = 0) -> dict[str, yaml.Node]:
        own: dict[str, yaml.Node] = {}
        merged: dict[str, yaml.Node] = {}
        for key, value in node.value:
            if key.tag == f"{_PREFIX}merge":
                merged = {**self._merged(value, depth), **merged}
                continue
            if _kind(key) != "scalar":
                raise self._refusal(key, "A key must be a word.")
            if key.value in own:
                raise self._refusal(key, f"{key.value!r} comes twice.")
            own[self._text(key)] = value
        return {**merged, **own}

    def _merged(self, node: yaml.Node, depth: int) -> dict[str, yaml.Node]:
        sources = node.value if _kind(node) == "sequence" else [node]
        found: dict[str, yaml.Node] = {}
        for source in sources:
            self._merges += 1 + len(source.value)
            if self._merges > MOST_VALUES:
                raise self._refusal(node, f"More than {MOST_VALUES} values are merged here, aliases unfolded.")
            if _kind(source) != "mapping" or depth > DEEPEST or len(sources) > DEEPEST:
                raise self._refusal(node, "<< takes a mapping that is named elsewhere, as *name.")
            found = {**self._pairs(source, depth + 1), **found}
        return found

    def _scalar(self, node: yaml.Node) -> object:
        text, tag = self._text(node), node.tag.removeprefix(_PREFIX)
        if tag in ("str", "merge"):
            return text
        if node.tag not in _FORMS or not _FORMS[node.tag][0].match(text):
            raise self._refusal(node, f"The tag {node.tag!r} does not fit here: write the value without it.")
        if tag in ("null", "bool"):
            return None if tag == "null" else text == "true"
        if len(text) > MOST_DIGITS or not math.isfinite(float(text)):
            raise self._refusal(node, "The number is too long.")
        return int(text) if tag == "int" else float(text)

    def _text(self, node: yaml.Node) -> str:
        text: str = node.value
        if UNPRINTABLE.search(text):
            raise self._refusal(node, "There are characters in this that no text has.")
        return text


@dataclass(frozen=True)
class Place:
    """A part of a document, read as what it has to be."""

    document: Document
    value: object
    path: Path = ()

    @property
    def where(self) -> str:
        return self.document.where(self.path)

    def refusal(self, sentence: str) -> UsageMistakeError:
        shown = ".".join(str(part) for part in self.path)
        return UsageMistakeError(f"{self.where}: {f'{shown}: ' if shown else ''}{sentence}")

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

    def truth(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.refusal("This must be true or false.")
        return self.value

    def entries(self) -> Iterator[Place]:
        if not isinstance(self.value, list):
            raise self.refusal("This must be a list.")
        return (Place(self.document, item, (*self.path, index)) for index, item in enumerate(self.value))

    def parts(self) -> dict[str, Place]:
        if not isinstance(self.value, dict):
            raise self.refusal("This must have keys and values.")
        return {key: Place(self.document, value, (*self.path, key)) for key, value in self.value.items()}

    def fields(self, known: Collection[str]) -> dict[str, Place]:
        """With the keys that are known, and no others."""
        found = self.parts()
        for name, place in found.items():
            if name not in known:
                raise place.refusal(f"There is no such field; known are: {', '.join(known)}.")
        return found
