"""Self-test of the sandbox: probes that try to break out, and the evaluation of their findings.

Entry point: `runner.run_self_test`.
"""
