"""Browser accounts: login, password change, and the permissions that follow from staff status.

Entry points: `login.Login`, `password_change.PasswordChange`, `permission_backend.OperatorBackend`.
"""
