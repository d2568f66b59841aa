"""Environment variables with values that are not accepted."""


class InvalidVariable(ValueError):
    """The text names an environment variable, its value and the accepted values, in one line.

    The ``nsq`` command prints it and exits with status 2.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason
