"""Chunks of documents on disk, and the ids that a draft may propose."""

from __future__ import annotations

from pathlib import Path

import torch

from specdec_core.training.documents import Chunk, most_frequent_ids, read_chunk, write_chunk
from tests.training.texts import random_documents


def test_a_chunk_is_read_as_it_was_written(tmp_path: Path) -> None:
    documents, turns = random_documents(5), random_documents(4, seed=1)
    write_chunk(tmp_path / "chunk", Chunk(documents, turns, 3))
    found = read_chunk(tmp_path / "chunk")
    assert found.num_excluded == 3
    assert (len(found.documents), len(found.turns)) == (5, 4)
    for written, read in zip(documents + turns, found.documents + found.turns, strict=True):
        assert (read.index, read.answer_start) == (written.index, written.answer_start)
        for name in ("ids", "top_ids", "top_logprobs"):
            assert torch.equal(getattr(read, name), getattr(written, name))


def test_a_chunk_whose_documents_were_all_dropped(tmp_path: Path) -> None:
    write_chunk(tmp_path / "chunk", Chunk([], [], 7))
    assert read_chunk(tmp_path / "chunk") == Chunk([], [], 7)


def test_nothing_but_the_chunk_is_left_in_the_folder(tmp_path: Path) -> None:
    write_chunk(tmp_path / "chunk", Chunk(random_documents(2), [], 0))
    assert [path.name for path in tmp_path.iterdir()] == ["chunk"]


def test_the_most_frequent_ids_are_taken_and_end_ids_always() -> None:
    documents = random_documents(30)
    counts = torch.cat([document.ids for document in documents]).bincount(minlength=97)
    rarest = int(counts.argmin())
    ids = most_frequent_ids(documents, 20, 97, frozenset({rarest}))
    assert list(ids) == sorted(set(ids))
    assert len(ids) == 20
    assert rarest in ids
    least = min(int(counts[i]) for i in ids if i != rarest)
    assert all(int(counts[i]) <= least for i in range(97) if i not in ids)


def test_ids_that_never_occur_fill_up_from_the_lowest() -> None:
    assert most_frequent_ids([], 3, 10, frozenset({9})) == (0, 1, 9)
