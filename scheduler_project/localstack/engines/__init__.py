"""PostgreSQL, Valkey and SeaweedFS from wheels: their files, arguments, ports and passwords.

Entry points: `base.Engine`, the interface; `standalone.Engines`, all three without a supervisor, for tests.
"""
