"""The object store: artifacts (programs and inputs of runs), outputs, and storage quotas.

Artifacts are immutable and addressed by their SHA-256; bytes that a run may still need are never deleted.
Only `s3` imports boto3. Entry points: `artifacts`, `outputs.publish_outputs`, `orphans.sweep_orphans`, `quota`.
"""
