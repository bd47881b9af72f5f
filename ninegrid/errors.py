"""Errors that a person can act on.

Every error of this project that is caused by settings, files or the outside world derives from
`NinegridError`.  Stage entrypoints print such an error as one message and exit with status 2;
anything else is a bug and keeps its traceback.
"""

from __future__ import annotations


class NinegridError(Exception):
    """Base of all errors whose cause lies outside the code.

    Args:
        message: what is wrong, naming the file or setting, the actual and the expected value.
        hint: what to do next, ideally a command.  Printed on a line of its own.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  -> {self.hint}"


class SettingsError(NinegridError):
    """A setting is unknown, of the wrong type, or outside its allowed range."""


class DataError(NinegridError):
    """A data file is missing, unreadable, or does not hold what it must."""


class ModelSourceError(NinegridError):
    """The model's files cannot be had, or are not the ones that were asked for."""


class ConditionsError(NinegridError):
    """Two measurements that must be taken under equal conditions were not."""


class CannotForceError(NinegridError):
    """The format of a call cannot be forced on a model: its tokenizer or a tool's schema forbids it."""


class TrainingError(NinegridError):
    """Training met a value it must not learn from (a non-finite reward, loss or gradient)."""
