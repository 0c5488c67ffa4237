"""`punctual apply`: reads a YAML file of jobs, compares it with the server and makes the changes.

It never deletes a job. Entry points: `manifests.read_manifest`, `planning.make_plan`, `applying.apply_plan`.
"""
