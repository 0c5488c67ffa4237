"""Output files of executions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from punctual_client.json_fields import JsonObject, as_objects, int_field, text_field
from punctual_client.resources.base import ApiCalls, path_segment


@dataclass(frozen=True)
class Output:
    name: str
    size: int
    sha256: str
    url: str = field(repr=False)
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def parse(cls, data: JsonObject) -> Output:
        return cls(
            name=text_field(data, "name"),
            size=int_field(data, "size"),
            sha256=text_field(data, "sha256"),
            url=text_field(data, "url"),
            raw=data,
        )


class OutputCalls(ApiCalls):
    def outputs(self, execution_id: str) -> list[Output]:
        answer = self._transport.get(f"executions/{path_segment(execution_id)}/outputs")
        return [Output.parse(item) for item in as_objects(answer.get("results"))]

    def delete_outputs(self, execution_id: str) -> None:
        self._transport.send("DELETE", f"executions/{path_segment(execution_id)}/outputs")

    @contextmanager
    def download(self, output: Output) -> Iterator[Iterator[bytes]]:
        with self._transport.download(output.url) as pieces:
            yield pieces
