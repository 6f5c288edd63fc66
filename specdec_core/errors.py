"""Errors that reach callers: invalid requests, refused requests and failures."""


class SpecdecError(Exception):
    """Base of every error that the engine raises on purpose."""

    param = ""
    """Path of the caller's wrong field (`messages.0.content`); empty if no single one is wrong."""


class InvalidRequestError(SpecdecError, ValueError):
    """An error of the caller. The message names the offending value and the limit.

    `code` is a stable word for programs, as in OpenAI's API.
    """

    def __init__(self, message: str, *, param: str = "", code: str = "invalid_value") -> None:
        super().__init__(message)
        self.param = param
        self.code = code


def out_of_range(
    name: str, value: float, low: float, high: float, wording: str
) -> InvalidRequestError:
    """Return the error for a number outside `low`..`high`. `wording` describes that range."""
    kind = "integer" if isinstance(value, int) else "decimal"
    code = "invalid_value"  # not a number
    if value < low:
        code = f"{kind}_below_min_value"
    elif value > high:
        code = f"{kind}_above_max_value"
    return InvalidRequestError(f"{name} must be {wording}, got {value}", param=name, code=code)


class ModelNotSupportedError(SpecdecError, ValueError):
    """A model, or a pair of models, that this engine cannot serve. The message has the reason."""


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
    """The KV cache has no free block left. The refused call changed nothing."""


class NotExactError(ModelNotSupportedError):
    """Exact numerics cannot be kept on this machine and model. The message names the operation."""


class RankError(SpecdecError):
    """A rank of a replica is gone, or its model differs from that of rank 0."""
