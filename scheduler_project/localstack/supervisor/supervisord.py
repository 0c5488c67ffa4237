"""supervisord, patched so that a log write error (a full disk) does not end it and the stack."""

from supervisor import loggers, supervisord


def ignore_log_error(handler: loggers.Handler) -> None:
    """Ignore the error. The stock version prints to stderr, which is on the same disk, and fails."""


loggers.Handler.handleError = ignore_log_error

if __name__ == "__main__":
    supervisord.main()
