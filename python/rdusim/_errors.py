"""Exceptions: what is wrong, where, and what to change."""

from __future__ import annotations


class RdusimError(Exception):
    """Base of every error that this package raises of its own."""


class InputError(RdusimError, ValueError):
    """An input cannot be used.

    Attributes:
        message: What is wrong, with what was found and expected.
        file: The file, or the name of a text; None for an override.
        line, column: Its place there, from 1; None if it has none.
        field: The field, named as overrides name it (``pmu.banks``, ``arch.memory.hbm.latency_ns``); None if there is none.
        advice: What to change; None if that is not known.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
        column: int | None = None,
        field: str | None = None,
        advice: str | None = None,
        rendered: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.file, self.line, self.column = file, line, column
        self.field, self.advice = field, advice
        self._rendered = rendered or message

    def __str__(self) -> str:
        return self._rendered


class DeadlockError(RdusimError):
    """A run that cannot go on; the message names the blocked stages and what each waits for."""


class LimitError(RdusimError):
    """A run that was too long for the engine."""


class ProofError(RdusimError):
    """A certificate that does not hold."""


class MismatchError(RdusimError):
    """A configuration that does not compute what the graph says."""


class FileError(RdusimError, OSError):
    """A file that could not be written."""
