"""The count of lines leaves out what is no code."""

from __future__ import annotations

from tests.house.code_lines import code_lines

SOURCE = '''"""A module.

Two paragraphs.
"""

from x import y  # a comment behind code


class A:
    """A class."""

    a: int = 1
    """An attribute."""

    # a comment
    def f(self) -> str:
        """Return a text."""
        return """a
text"""
'''


def test_docstrings_comments_and_blank_lines_do_not_count() -> None:
    assert code_lines(SOURCE) == 6
