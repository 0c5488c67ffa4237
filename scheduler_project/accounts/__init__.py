"""Browser accounts: login, password change, and the permissions that follow from staff status."""
