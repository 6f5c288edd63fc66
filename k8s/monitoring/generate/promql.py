"""PromQL over our metrics. A name that no metric has raises an error."""

from __future__ import annotations

import re

from deployments.observability.metrics.registry import on_ray

_NAME = re.compile(r"@([a-z0-9_]+)(?:\{([^}]*)\})?")


def promql(text: str, *scope: str) -> str:
    """Return `text` with every @name as Ray exports it. Its matchers are followed by those of
    `scope`."""

    def series(match: re.Match[str]) -> str:
        matchers = [matcher for matcher in (match[2], *scope) if matcher]
        name = on_ray(match[1])
        return f"{name}{{{', '.join(matchers)}}}" if matchers else name

    return _NAME.sub(series, " ".join(text.split()))


def quantile(share: float, metric: str, by: str, window: str, matchers: str = "") -> str:
    """Return the expression for a quantile of a histogram, for `promql`."""
    by = f"{by}, le" if by else "le"
    buckets = f"@specdec_{metric}_bucket{{{matchers}}}"
    return f"histogram_quantile({share:g}, sum by ({by}) (rate({buckets}[{window}])))"


def mean(metric: str, by: str, window: str) -> str:
    """Return the expression for the mean of a histogram or a summary, for `promql`."""
    total, count = (
        f"sum by ({by}) (rate(@specdec_{metric}_{end}[{window}]))" for end in ("sum", "count")
    )
    return f"{total} / {count}"
