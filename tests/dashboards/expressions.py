"""What is wrong with a PromQL expression: its grammar, and the names and labels of our metrics."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import promql_parser as promql

Labels = Mapping[str, frozenset[str]]
"""What is exported or recorded: name -> labels."""

_GRAFANA = {"$__rate_interval": "5m"}
_GROWING = ("_total", "_bucket", "_count", "_sum")
_OF_GROWING = ("rate", "increase", "irate")


def faults(expression: str, known: Labels) -> list[str]:
    """Nothing where all is well."""
    for variable, value in _GRAFANA.items():
        expression = expression.replace(variable, value)
    try:
        parsed = promql.parse(expression)
    except ValueError as error:
        return [f"not PromQL: {error}"]
    return [fault for node in nodes(parsed) for fault in _faults_of(node, known)]


def nodes(parsed: promql.Expr) -> list[promql.Expr]:
    found: list[promql.Expr] = []
    promql.walk(parsed, lambda node: found.append(node))
    return found


def selectors(parsed: promql.Expr) -> list[promql.VectorSelector]:
    inner = [n.vector_selector for n in nodes(parsed) if isinstance(n, promql.MatrixSelector)]
    plain = [n for n in nodes(parsed) if isinstance(n, promql.VectorSelector)]
    return inner + plain


def labels_of(expression: str) -> frozenset[str]:
    """Of what an aggregation gives: those that it is by."""
    parsed = promql.parse(expression)
    groups = [node.modifier for node in nodes(parsed) if isinstance(node, promql.AggregateExpr)]
    return frozenset(label for group in groups if group for label in group.labels) - {"le"}


def _faults_of(node: promql.Expr, known: Labels) -> Iterator[str]:
    if isinstance(node, promql.MatrixSelector):
        yield from _of_selector(node.vector_selector, known)
    elif isinstance(node, promql.VectorSelector):
        yield from _of_selector(node, known)
    elif isinstance(node, promql.AggregateExpr) and node.modifier is not None:
        there = frozenset().union(*(known.get(s.name or "", frozenset()) for s in selectors(node)))
        for label in set(node.modifier.labels) - there:
            yield f"grouped by {label}, which is no label of what is grouped"
    elif isinstance(node, promql.Call):
        yield from _of_call(node)


def _of_selector(selector: promql.VectorSelector, known: Labels) -> Iterator[str]:
    labels = known.get(selector.name or "")
    if labels is None:
        yield f"no metric is called {selector.name}"
        return
    for matcher in selector.matchers.matchers:
        if matcher.name not in labels:
            yield f"{selector.name} has no label {matcher.name}"


def _of_call(call: promql.Call) -> Iterator[str]:
    names = [selector.name or "" for selector in selectors(call)]
    if call.func.name in _OF_GROWING:
        for name in names:
            if not name.endswith(_GROWING):
                yield f"{call.func.name} of {name}, which is no counter"
    if call.func.name == "histogram_quantile":
        groups = [n.modifier for n in nodes(call) if isinstance(n, promql.AggregateExpr)]
        if not all(group and "le" in group.labels for group in groups):
            yield "histogram_quantile of what is not grouped by le"
        if not all(name.endswith("_bucket") for name in names):
            yield f"histogram_quantile of {names}"


_LABEL_VALUES = re.compile(r"^label_values\(([a-z0-9_]+), ([a-z_]+)\)$")


def faults_of_variable(query: str, known: Labels) -> list[str]:
    """Of a Grafana variable."""
    found = _LABEL_VALUES.match(query)
    if found is None:
        return [f"not label_values: {query}"]
    name, label = found.groups()
    if name not in known:
        return [f"no metric is called {name}"]
    return [] if label in known[name] else [f"{name} has no label {label}"]
