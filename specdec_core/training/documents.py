"""What a draft is trained on: answers of the target, and what it thought likely at each token.

Shape legend: S ids of a document, A ids of its answer, C the target's likeliest ids that are kept.
Documents lie in chunks, one file for each, written at once: a chunk is there or it is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from specdec_core.training.settings import write_atomically


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """A prompt, the target's answer, and the target's distribution behind every answer token."""

    index: int
    """Place in the whole text; places of dropped documents stay empty."""
    ids: Tensor
    """[S] int32."""
    answer_start: int
    """ids[answer_start:] is the answer."""
    top_ids: Tensor
    """[A, C] int32, the likeliest first; row a is the distribution of ids[answer_start + a]."""
    top_logprobs: Tensor
    """[A, C] float16."""

    @property
    def num_answer_tokens(self) -> int:
        return len(self.ids) - self.answer_start


class Chunk(NamedTuple):
    documents: list[Document]
    num_excluded: int
    """Dropped because they share a run of words with an excluded text."""


def chunk_path(folder: Path, start: int, end: int) -> Path:
    return folder / f"text-{start:08}-{end:08}.safetensors"


def write_chunk(path: Path, chunk: Chunk) -> None:
    documents = chunk.documents
    tensors = {
        "indices": torch.tensor([d.index for d in documents], dtype=torch.int32),
        "lengths": torch.tensor([len(d.ids) for d in documents], dtype=torch.int32),
        "answer_starts": torch.tensor([d.answer_start for d in documents], dtype=torch.int32),
        "num_excluded": torch.tensor([chunk.num_excluded], dtype=torch.int32),
    }
    for name in ("ids", "top_ids", "top_logprobs") if documents else ():
        tensors[name] = torch.cat([getattr(document, name) for document in documents])
    write_atomically(path, save(tensors))


def read_chunk(path: Path) -> Chunk:
    tensors = load_file(path)
    indices, lengths = tensors["indices"].tolist(), tensors["lengths"].tolist()
    starts = tensors["answer_starts"].tolist()
    if not indices:
        return Chunk([], int(tensors["num_excluded"]))
    answer_lengths = [length - start for length, start in zip(lengths, starts, strict=True)]
    ids = torch.split(tensors["ids"], lengths)
    top_ids = torch.split(tensors["top_ids"], answer_lengths)
    top_logprobs = torch.split(tensors["top_logprobs"], answer_lengths)
    rows = zip(indices, ids, starts, top_ids, top_logprobs, strict=True)
    return Chunk([Document(*row) for row in rows], int(tensors["num_excluded"]))


def most_frequent_ids(
    documents: Sequence[Document], size: int, vocab_size: int, always: frozenset[int]
) -> tuple[int, ...]:
    """The `size` most frequent ids of the text, ascending; `always` among them.

    Of equally frequent ones the lowest: tokenizers give low ids to frequent tokens.
    """
    counts_V = torch.zeros(vocab_size, dtype=torch.long)
    for document in documents:
        counts_V += document.ids.long().bincount(minlength=vocab_size)
    counts_V[list(always)] = torch.iinfo(torch.long).max
    order_V = counts_V.argsort(descending=True, stable=True)
    return tuple(sorted(order_V[:size].tolist()))
