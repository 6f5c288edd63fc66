"""The product's texts keep the rules of tests/house/prose.py."""

from __future__ import annotations

from collections import Counter

from tests.house.prose import PRODUCT, Rule, findings, of_folders


def test_every_text_of_the_product_is_easy_to_read() -> None:
    lines = [
        f"{path}:{found.line}: {found.rule}: {found.text}" for path, found in of_folders(PRODUCT)
    ]
    assert not lines, "\n".join(lines)


SOURCE = """
x: int = 1
'Of a pass that begins anew.'
# nobody reads a comment
raise ValueError("so many things")
y: int = flag(1, "Fewest of the rows.")
z = _seconds("name", (1.0,), "Those of the rows.")
"""
LONG = "'" + "Word " * 26 + "end.'"


def test_each_kind_of_text_is_read() -> None:
    found = Counter(one.rule for one in findings(SOURCE))
    assert found == {Rule.FRAGMENT: 3, Rule.HARD_WORD: 4}
    assert [one.rule for one in findings(LONG)] == [Rule.LONG_SENTENCE]
