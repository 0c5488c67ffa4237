"""Commands of `manage.py`: installation, tokens of workers, audits and sealing of secrets.

Entry points: the modules of `commands`.
"""
