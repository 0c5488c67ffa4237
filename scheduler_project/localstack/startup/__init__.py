"""The steps of `up`: checks, `bootstrap`, waiting for web, and the hello job.

Entry points: `preflight`, `bootstrap.run_bootstrap`, `readiness.wait_until_web_ready`, `hello_job.run_hello_job`.
"""
