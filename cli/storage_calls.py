"""The verbs about files: artifacts to run, outputs that were left, and how much of the storage they take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from cli.answers import as_objects, text
from cli.calls import Calls, segment
from cli.storage_records import Artifact, KeptArtifact, Output, StorageUse, Upload


class StorageCalls(Calls):
    def create_artifact(self, *, sha256: str, size: int) -> Artifact:
        return Artifact.parse(self._transport.send("POST", "artifacts", {"sha256": sha256, "size": size}))

    def upload_artifact(self, upload: Upload, content: Iterable[bytes], *, size: int) -> None:
        # A length of its own: storage refuses the chunked encoding that an iterator would get.
        given = {name: value for name, value in upload.headers if name.lower() != "content-length"}
        headers = {**given, "Content-Length": str(size)}
        self._transport.upload(upload.method, upload.url, headers, content)

    def complete_artifact(self, artifact_id: str) -> Artifact:
        return Artifact.parse(self._transport.send("POST", f"artifacts/{segment(artifact_id)}/complete"))

    def artifacts(self, *, limit: int = 50) -> list[KeptArtifact]:
        return [KeptArtifact.parse(item) for item in self._listing("artifacts", {}, limit)]

    def artifact_sha256(self, artifact_id: str) -> str:
        return text(self._transport.get(f"artifacts/{segment(artifact_id)}"), "sha256")

    def delete_artifact(self, artifact_id: str) -> None:
        self._transport.send("DELETE", f"artifacts/{segment(artifact_id)}")

    def outputs(self, execution_id: str) -> list[Output]:
        answer = self._transport.get(f"executions/{segment(execution_id)}/outputs")
        return [Output.parse(item) for item in as_objects(answer.get("results"))]

    def delete_outputs(self, execution_id: str) -> None:
        self._transport.send("DELETE", f"executions/{segment(execution_id)}/outputs")

    @contextmanager
    def download(self, output: Output) -> Iterator[Iterator[bytes]]:
        with self._transport.download(output.url) as pieces:
            yield pieces

    def owner(self) -> str:
        """Whose token it is: the name that their jobs show."""
        return text(self._transport.get("usage"), "owner")

    def storage_use(self) -> StorageUse:
        return StorageUse.parse(self._transport.get("usage"))
