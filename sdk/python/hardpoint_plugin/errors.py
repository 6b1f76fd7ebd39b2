"""Errors whose identity the host knows.

A plugin raises them, with a text for a person; any other exception crosses as its
text alone. The numbers are those of the table of the Go package sdk/wire.
"""


class PluginError(Exception):
    """What the errors of this module have in common."""

    code = 0


class Full(PluginError):
    """There is no space, and nothing of the batch was kept."""

    code = 1


class Fenced(PluginError):
    """The batch is of an office that is over."""

    code = 2


class ReadOnly(PluginError):
    """The store takes no writes now; the text says why."""

    code = 3


class TooLarge(PluginError):
    """A record does not fit into a segment."""

    code = 4


class Gap(PluginError):
    """A position that does not continue the log, or is not in it."""

    code = 5


class Failed(PluginError):
    """The store failed earlier and takes no writes until it is opened again."""

    code = 6


class Identity(PluginError):
    """The directory holds another log, or one with another segment size."""

    code = 7


class NotRunning(PluginError):
    """The store is not started, or shut down."""

    code = 8


class Unsupported(PluginError):
    """An argument that this store does not support."""

    code = 9


class Unavailable(PluginError):
    """There is nothing of that name or number here, or not any more."""

    code = 32


class ConfigError(PluginError):
    """Something is wrong with the configuration."""

    code = 33


class DeadlineExceeded(PluginError):
    """The time of the caller is over."""

    code = 65


class RequestError(PluginError):
    """A request that cannot be allocated."""

    code = 96


class Corrupt(PluginError):
    """Bytes are damaged: file, the byte in it at which the damage begins, and what is
    wrong."""

    def __init__(self, file, offset, reason):
        super().__init__(f"corrupt data in {file} at byte {offset}: {reason}")
        self.file, self.offset, self.reason = file, offset, reason
