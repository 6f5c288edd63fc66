"""Documents that a draft is trained on: the target's text and its likely IDs at each token.

A document is a prompt and its answer, or the template's words and a made-up user turn. Documents
are stored in chunks. Each chunk is one file, written atomically, so it is complete or missing.

Shape legend: S IDs of a document, A IDs of its answer, C the target's most likely IDs that are
kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from specdec_core.training.settings import write_atomically

_ANSWERS, _TURNS = "answer.", "turn."
"""Prefixes of the names of a chunk's tensors."""


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """A prompt, the target's answer, and the target's distribution for every answer token."""

    index: int
    """Position in the whole text. Positions of dropped documents stay empty."""
    ids: Tensor
    """[S] int32."""
    answer_start: int
    """ids[answer_start:] is the answer, or the turn."""
    top_ids: Tensor
    """[A, C] int32, the most likely first. Row a is the distribution of ids[answer_start + a]."""
    top_logprobs: Tensor
    """[A, C] float16."""

    @property
    def num_answer_tokens(self) -> int:
        return len(self.ids) - self.answer_start


class Chunk(NamedTuple):
    documents: list[Document]
    """Answers after their prompts."""
    turns: list[Document]
    """User turns that the target made up."""
    num_excluded: int
    """Number of texts dropped because they share a run of words with an excluded text."""


def chunk_path(folder: Path, start: int, end: int) -> Path:
    return folder / f"text-{start:08}-{end:08}.safetensors"


def write_chunk(path: Path, chunk: Chunk) -> None:
    tensors = {"num_excluded": torch.tensor([chunk.num_excluded], dtype=torch.int32)}
    for prefix, documents in ((_ANSWERS, chunk.documents), (_TURNS, chunk.turns)):
        tensors |= {prefix + name: tensor for name, tensor in _tensors(documents).items()}
    write_atomically(path, save(tensors))


def read_chunk(path: Path) -> Chunk:
    tensors = load_file(path)
    return Chunk(
        _documents(tensors, _ANSWERS), _documents(tensors, _TURNS), int(tensors["num_excluded"])
    )


def _tensors(documents: Sequence[Document]) -> dict[str, Tensor]:
    """Return the tensors of a chunk's documents; empty if there are no documents."""
    if not documents:
        return {}
    columns = {
        "indices": [document.index for document in documents],
        "lengths": [len(document.ids) for document in documents],
        "answer_starts": [document.answer_start for document in documents],
    }
    rows = {
        name: torch.cat([getattr(document, name) for document in documents])
        for name in ("ids", "top_ids", "top_logprobs")
    }
    return {name: torch.tensor(c, dtype=torch.int32) for name, c in columns.items()} | rows


def _documents(tensors: Mapping[str, Tensor], prefix: str) -> list[Document]:
    if prefix + "indices" not in tensors:
        return []
    indices, lengths, starts = (
        tensors[prefix + name].tolist() for name in ("indices", "lengths", "answer_starts")
    )
    answer_lengths = [length - start for length, start in zip(lengths, starts, strict=True)]
    ids = torch.split(tensors[prefix + "ids"], lengths)
    top_ids = torch.split(tensors[prefix + "top_ids"], answer_lengths)
    top_logprobs = torch.split(tensors[prefix + "top_logprobs"], answer_lengths)
    rows = zip(indices, ids, starts, top_ids, top_logprobs, strict=True)
    return [Document(*row) for row in rows]


def most_frequent_ids(
    documents: Sequence[Document], size: int, vocab_size: int, always: frozenset[int]
) -> tuple[int, ...]:
    """Return the `size` most frequent IDs of the text, ascending; `always` is among them.

    Among equally frequent IDs, the lowest are taken, because tokenizers give low IDs to frequent
    tokens.
    """
    counts_V = torch.zeros(vocab_size, dtype=torch.long)
    for document in documents:
        counts_V += document.ids.long().bincount(minlength=vocab_size)
    counts_V[list(always)] = torch.iinfo(torch.long).max
    order_V = counts_V.argsort(descending=True, stable=True)
    return tuple(sorted(order_V[:size].tolist()))
