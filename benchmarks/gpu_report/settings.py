"""What is asked of a report, and the sizes of what it measures."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkShape:
    """The sizes that decide what a pass costs; a network of Qwen3's kind, with its q/k norms."""

    name: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int = 128
    vocab: int = 151_936
    is_tied: bool = False
    """The head is the embedding."""
    experts: int = 0
    """0: a dense MLP of width `ffn`; else that many of width `ffn` each."""
    experts_per_token: int = 0


QWEN3_8B = NetworkShape(name="Qwen3-8B", layers=36, hidden=4096, ffn=12288, heads=32, kv_heads=8)
QWEN3_06B = NetworkShape(
    name="Qwen3-0.6B", layers=28, hidden=1024, ffn=3072, heads=16, kv_heads=8, is_tied=True
)
QWEN3_30B_A3B = NetworkShape(
    name="Qwen3-30B-A3B",
    layers=48,
    hidden=2048,
    ffn=768,
    heads=32,
    kv_heads=4,
    experts=128,
    experts_per_token=8,
)


def _tiny(name: str, *, layers: int = 1, is_tied: bool = False, experts: int = 0) -> NetworkShape:
    return NetworkShape(
        name=name,
        layers=layers,
        hidden=64,
        ffn=64,
        heads=2,
        kv_heads=1,
        head_dim=32,
        vocab=256,
        is_tied=is_tied,
        experts=experts,
        experts_per_token=min(experts, 2),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Of the measurements. The defaults are those of a GPU of 80 GB."""

    target: NetworkShape = QWEN3_8B
    draft: NetworkShape = QWEN3_06B
    mixture: NetworkShape = QWEN3_30B_A3B
    dtype: str = "bfloat16"
    rows: tuple[int, ...] = (8, 1, 32, 64, 128)
    """What matters most first: a step that is cut short leaves what it has."""
    contexts: tuple[int, ...] = (512, 2048, 8192)
    """Tokens that each row caches before a pass."""
    max_cached: int = 65_536
    """Tokens that all rows of a pass cache at most."""
    k: int = 4
    """Drafted tokens of a verification that is timed alone."""
    max_k: int = 8
    """What the goodput policy chooses up to."""
    acceptances: tuple[float, ...] = (0.7, 0.9, 0.5)
    tokens: int = 96
    """Decoded for each prompt where speed is measured."""
    repeats: int = 15
    """Timed passes; medians count."""
    priced_sequences: tuple[int, ...] = (1, 8, 16, 32, 64, 128)
    priced_tokens: tuple[int, ...] = (1, 2, 3, 5, 9)
    """Tokens of each sequence in the passes whose prices are measured."""
    priced_cached: tuple[int, ...] = (200, 400)
    """Cached tokens of each sequence there."""
    num_prompts: int = 64
    max_prompt_len: int = 120
    answer_len: int = 24
    """Of the prompts whose answers are compared."""
    batches: tuple[int, ...] = (8, 64, 1)
    """Rows of a group where answers are compared."""
    profiled: int = 10
    """Passes, and rounds, in a profile."""

    def rows_of(self, num_prompts: int) -> list[int]:
        """Those for which there are so many prompts."""
        return [rows for rows in self.rows if rows <= num_prompts]


REHEARSED = Sizes(
    target=_tiny("tiny target", layers=2),
    draft=_tiny("tiny draft", is_tied=True),
    mixture=_tiny("tiny mixture", experts=4),
    dtype="float32",
    rows=(8, 1),
    contexts=(40,),
    max_cached=512,
    max_k=4,
    acceptances=(0.7,),
    tokens=12,
    repeats=2,
    priced_sequences=(1, 2),
    priced_tokens=(1, 3),
    priced_cached=(20,),
    num_prompts=6,
    max_prompt_len=24,
    answer_len=6,
    batches=(1, 4),
    profiled=2,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is asked. Travels to the process of each step."""

    device: str
    output: Path
    is_rehearsal: bool = False
    """Tiny shapes on a CPU: shows that all of it runs, and measures no speed."""
    model: str | None = None
    """Folder or hub ID of a model with weights; None takes the demo model if it was pulled."""
    has_random_model: bool = False
    """Without `model`, random weights of the draft's shape stand in for one."""
    draft: str | None = None
    peer: str | None = None
    """Base URL of a running OpenAI-compatible server."""
    sizes: Sizes = field(default_factory=Sizes)
