"""The errors that cross a seam: what a caller did wrong, what was refused, what failed."""


class SpecdecError(Exception):
    """Base of every error that the engine raises on purpose."""


class InvalidRequestError(SpecdecError, ValueError):
    """The caller's mistake; the message names the offending value and the limit.

    `param` is the caller's name of the wrong field, with its path (`messages.0.content`); empty if
    no single field is wrong. `code` is a stable word for programs, as in OpenAI's API.
    """

    def __init__(self, message: str, *, param: str = "", code: str = "invalid_value") -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class ModelNotSupportedError(SpecdecError, ValueError):
    """A model, or a pair of models, that this engine cannot serve; the message says why."""


class TryAgainError(SpecdecError):
    """The request is worth sending again after `retry_after_s` seconds."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class QueueFullError(TryAgainError):
    """The waiting queue is at its limit."""

    def __init__(self, num_queued: int, limit: int, retry_after_s: float) -> None:
        super().__init__(
            f"{num_queued} requests are waiting, the limit is {limit}: "
            f"try again in {retry_after_s:g} s",
            retry_after_s,
        )
        self.num_queued = num_queued
        self.limit = limit


class OutOfBlocksError(SpecdecError):
    """The KV cache has no free block left; nothing was changed by the refused call."""
