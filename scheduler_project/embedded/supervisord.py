"""supervisord, but for one thing: a log that it cannot write, on a full disk, does not end it and the stack with it."""

from supervisor import loggers, supervisord


def stay_calm(handler: loggers.Handler) -> None:
    """The stock version prints to stderr, which lies on the same disk, and falls over that."""


loggers.Handler.handleError = stay_calm

if __name__ == "__main__":
    supervisord.main()
