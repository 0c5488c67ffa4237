"""The worker's calls to the control plane: register, renew, claim, start, log, finish.

`direct` implements the interface with the capability packages of `jobs`, `rest` over HTTP.
Entry point: `base.ControlPlane`, the interface.
"""
