"""The product's texts become easier to read, never harder."""

from __future__ import annotations

from collections import Counter

from tests.house.prose import PRODUCT, Rule, findings, of_folders

MOST = {Rule.FRAGMENT: 2, Rule.HARD_WORD: 2, Rule.LONG_SENTENCE: 4}
"""Texts that are left. Lower a number when there are fewer; never raise one."""


def test_no_text_of_the_product_becomes_harder_to_read() -> None:
    told = list(of_folders(PRODUCT))
    counts = Counter(found.rule for _, found in told)
    lines = [f"{path}:{found.line}: {found.rule}: {found.text}" for path, found in told]
    assert {rule: counts[rule] for rule in Rule} == MOST, "\n".join(lines)


SOURCE = """
x: int = 1
'Of a pass that begins anew.'
# nobody reads a comment
raise ValueError("so many things")
y: int = flag(1, "Fewest of the rows.")
"""
LONG = "'" + "Word " * 26 + "end.'"


def test_each_kind_of_text_is_read() -> None:
    found = Counter(one.rule for one in findings(SOURCE))
    assert found == {Rule.FRAGMENT: 2, Rule.HARD_WORD: 4}
    assert [one.rule for one in findings(LONG)] == [Rule.LONG_SENTENCE]
