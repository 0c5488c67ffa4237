"""The worker's calls to the control plane: register, renew, claim, start, log, finish.

`base` defines the interface; `direct` implements it with the capability packages of `jobs`, `rest` over HTTP.
"""
