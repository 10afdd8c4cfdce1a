"""Every error the product raises on purpose.

The instance's text is the whole message: the fact first, then the way out. The class decides the exit
code; its docstring is the message only where nothing more is known. A command catches `ProbingError` once.
"""


class ProbingError(Exception):
    """Probing Cluster could not do what was asked."""

    exit_code: int = 1

    def __str__(self) -> str:
        return super().__str__() or (type(self).__doc__ or "").strip().splitlines()[0].rstrip(".")


class SettingsError(ProbingError):
    """The configuration is not usable."""

    exit_code = 2


class UsageError(ProbingError):
    """The command was called wrongly."""

    exit_code = 2


class NotFound(ProbingError):
    """No such thing is known."""

    exit_code = 3


class DatabaseUnavailable(ProbingError):
    """The database cannot be reached."""

    exit_code = 4


class DatabaseReadOnly(DatabaseUnavailable):
    """The database is there and takes no writing: a standby, or a setting of it or of this login."""


class DatabaseRefused(DatabaseUnavailable):
    """The database is there and does not let this account in."""

    exit_code = 5


class OverQuota(DatabaseUnavailable):
    """The database is there and takes no more rows of this node for now."""


class NotPermitted(ProbingError):
    """You may not see or do this."""

    exit_code = 5


class SlurmUnavailable(ProbingError):
    """Slurm did not answer."""

    exit_code = 6


class MalformedInput(ProbingError):
    """The input is not what its format promises."""

    exit_code = 7
