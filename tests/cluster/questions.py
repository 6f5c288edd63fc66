"""What the clients of a rehearsal ask: seeded, half of them greedy."""

from __future__ import annotations

from typing import Any

_TEXTS = (
    "The capital of France is",
    "A cheap draft guesses tokens, and the target",
    "Water boils at one hundred degrees because",
    "def fibonacci(n):\n    ",
    "Once upon a time there was a lighthouse keeper who",
    "The three most important things in a kitchen are",
    "Dear customer, thank you for your letter of",
    "In 1969 two men walked on the moon. They",
    "The list of prime numbers begins with 2, 3, 5, 7, 11, 13,",
    "Rivers flow to the sea because",
)
MAX_TOKENS = 96


def questions() -> list[dict[str, Any]]:
    """Bodies of /v1/completions; lines of `specdec generate`, too."""
    return [
        {
            "model": "smollm2-135m",
            "prompt": text,
            "max_tokens": MAX_TOKENS,
            "temperature": 0.7 if number % 2 else 0.0,
            "seed": number,
        }
        for number, text in enumerate(_TEXTS)
    ]
