"""The path to a part of a JSON schema that is being read, with its pointer for messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from specdec_core.errors import InvalidRequestError

Schema = Mapping[str, Any]


class Document(Protocol):
    """The whole schema."""

    def read(self, schema: Any, path: SchemaPath) -> Any:
        """Return the schema at `path` as the library reads it."""
        ...

    def resolved(self, schema: Any, path: SchemaPath) -> Any:
        """Return the schema, or the one that its references lead to."""
        ...

    def constant(self, value: Any, path: SchemaPath) -> Any:
        """Return a value of `enum` or `const`."""
        ...

    def reference(self, reference: Any, path: SchemaPath) -> str:
        """Return a reference to the same definition in the result."""
        ...

    def count(self, path: SchemaPath) -> None:
        """Take note of one schema or value. Raises InvalidRequestError for one too many."""
        ...

    def add_pattern(self, source: str, path: SchemaPath) -> None:
        """Take note of one regex."""
        ...

    def add_multiple(self, value: float, path: SchemaPath) -> None:
        """Take note of one `multipleOf`."""
        ...


class SchemaPath:
    """A path in a document. Its JSON pointer is made for messages only, because that costs."""

    __slots__ = ("definition", "depth", "document", "keys")

    def __init__(
        self, document: Document, keys: tuple[str | int, ...], depth: int, definition: str
    ) -> None:
        self.document = document
        self.keys = keys
        self.depth = depth
        self.definition = definition
        """The pointer of the definition that is about the same value as this path; else empty."""

    @classmethod
    def of_definition(cls, document: Document, pointer: str) -> SchemaPath:
        return cls(document, (pointer,), 1, pointer)

    @property
    def pointer(self) -> str:
        first, *rest = (str(key) for key in self.keys)
        return "/".join((first, *(key.replace("~", "~0").replace("/", "~1") for key in rest)))

    def at(self, *keys: str | int) -> SchemaPath:
        """Return a path below, for a part of the value."""
        return SchemaPath(self.document, self.keys + keys, self.depth + 1, "")

    def beside(self, *keys: str | int) -> SchemaPath:
        """Return a path below, for the same value."""
        return SchemaPath(self.document, self.keys + keys, self.depth + 1, self.definition)

    def read(self, schema: Any) -> Any:
        return self.document.read(schema, self)

    def wrong(self, reason: str) -> InvalidRequestError:
        """Return the error for a schema that is wrong here."""
        return InvalidRequestError(f"JSON schema: {self.pointer} {reason}")

    def unsupported(self, reason: str = "is not supported") -> InvalidRequestError:
        """Return the error for a schema that is right but cannot be enforced."""
        return InvalidRequestError(
            f"JSON schema: {self.pointer} {reason}", code="unsupported_value"
        )

    def text(self, value: Any) -> str:
        if not isinstance(value, str):
            raise self.wrong(f"must be a string, got {value!r:.40}")
        return value

    def items(self, value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise self.wrong(f"must be a list, got {value!r:.40}")
        return value

    def mapping(self, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.wrong(f"must be an object, got {value!r:.40}")
        return value
