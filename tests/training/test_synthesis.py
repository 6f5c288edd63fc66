"""The target's own text: what the settings say, without what is excluded, written once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from specdec_core.errors import InvalidRequestError
from specdec_core.training import synthesis
from specdec_core.training.documents import Document
from specdec_core.training.overlap import OverlapFilter
from specdec_core.training.settings import claim_folder
from specdec_core.training.synthesis import TextConfig, Writer
from specdec_core.worker.model_runner import ModelRunner
from tests.tiny_models import VOCAB, reference_greedy, tiny_model

CONFIG = TextConfig(
    num_documents=12,
    max_user_tokens=6,
    max_prompt_tokens=24,
    max_answer_tokens=10,
    num_candidates=5,
    batch_size=4,
)
END = 2


class WordChat:
    """Id n is the word wn; a turn is [1, words, 3]."""

    user_prefix_ids = (1,)
    user_end_ids = frozenset({3})

    def encode_part(self, text: str) -> tuple[int, ...]:
        return tuple(int(word[1:]) for word in text.split())

    def encode_user(self, text: str) -> tuple[int, ...]:
        return (1, *self.encode_part(text), 3)

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(f" w{i}" for i in ids)


def _writer(
    config: TextConfig = CONFIG, excluded: Sequence[str] = (), prompts: Sequence[str] = ()
) -> Writer:
    target = ModelRunner(tiny_model("llama"), vocab_size=VOCAB, kv_cache_tokens=2048)
    chat = WordChat()
    return Writer(target, frozenset({END}), chat, config, OverlapFilter(excluded), prompts)


def _ignore(done: int, total: int) -> None:
    pass


def _prompt(document: Document) -> str:
    return WordChat().decode(document.ids[1 : document.answer_start - 1].tolist()).strip()


def test_greedy_answers_are_the_targets(tmp_path: Path) -> None:
    config = replace(CONFIG, temperatures=(0.0,))
    text = _writer(config).write(tmp_path, _ignore)
    assert text.documents
    for document in text.documents:
        prompt, answer = document.ids.tolist(), document.ids[document.answer_start :].tolist()
        del prompt[document.answer_start :]
        expected = reference_greedy(tiny_model("llama"), prompt, CONFIG.max_answer_tokens, [END])
        assert answer == expected
        assert document.top_ids[:, 0].tolist() == answer


def test_the_kept_distribution_is_the_targets(tmp_path: Path) -> None:
    text = _writer().write(tmp_path, _ignore)
    for document in text.documents + text.turns:
        with torch.inference_mode():
            logits = tiny_model("llama")(document.ids[None].long()).logits[0]
        top = logits.log_softmax(-1)[document.answer_start - 1 : -1].topk(5, dim=-1)
        assert torch.equal(top.indices.int(), document.top_ids)
        assert torch.allclose(top.values, document.top_logprobs.float(), atol=0.01)


def test_temperatures_take_turns(tmp_path: Path) -> None:
    config = replace(CONFIG, temperatures=(0.0, 5.0))
    for document in _writer(config).write(tmp_path, _ignore).documents:
        is_greedy = torch.equal(document.top_ids[:, 0], document.ids[document.answer_start :])
        assert is_greedy == (document.index % 2 == 0)


def test_given_prompts_are_used_in_turn(tmp_path: Path) -> None:
    prompts = ["w5 w6", "w7", "w8 w9 w10"]
    text = _writer(prompts=prompts).write(tmp_path, _ignore)
    assert [_prompt(d) for d in text.documents] == [prompts[i % 3] for i in range(12)]


def test_openers_begin_the_user_turns(tmp_path: Path) -> None:
    config = replace(CONFIG, openers=("w5 w6", "w7"))
    for document in _writer(config).write(tmp_path, _ignore).documents:
        assert _prompt(document).startswith(config.openers[document.index % 2])


def test_made_up_turns_are_kept_with_the_words_that_were_answered(tmp_path: Path) -> None:
    config = replace(CONFIG, openers=("w5 w6", "w7"))
    text = _writer(config).write(tmp_path, _ignore)
    answered = {document.index: document for document in text.documents}
    assert {turn.index for turn in text.turns} >= answered.keys()
    for turn in text.turns:
        opener = WordChat().encode_part(config.openers[turn.index % 2])
        assert turn.ids[: turn.answer_start].tolist() == [1, *opener]
        said = [i for i in turn.ids.tolist() if i != 3]
        assert answered[turn.index].ids[: len(said)].tolist() == said


def test_given_prompts_make_no_turns(tmp_path: Path) -> None:
    assert _writer(prompts=["w5 w6"]).write(tmp_path, _ignore).turns == []


def test_prompts_that_are_too_long_are_dropped(tmp_path: Path) -> None:
    prompts = ["w5", " ".join(["w6"] * 30)]
    text = _writer(prompts=prompts).write(tmp_path, _ignore)
    assert {_prompt(document) for document in text.documents} == {"w5"}
    assert text.num_excluded == 0


def test_prompts_that_overlap_with_an_excluded_text_are_dropped(tmp_path: Path) -> None:
    """Found by running without the filter: some documents go, the others stay as they were."""
    free = _writer().write(tmp_path / "free", _ignore)
    banned = [_prompt(free.documents[i]) for i in (0, 3, 7)]
    kept = _writer(excluded=banned).write(tmp_path / "kept", _ignore)
    words = OverlapFilter(banned)
    assert free.num_excluded == 0
    assert kept.num_excluded >= 3
    assert kept.num_excluded + len(kept.documents) == len(free.documents)
    assert not any(words.overlaps(_prompt(document)) for document in kept.documents)
    assert {turn.index for turn in kept.turns}.isdisjoint({0, 3, 7})
    before = {document.index: document for document in free.documents}
    for document in kept.documents:
        assert torch.equal(document.ids, before[document.index].ids)


def test_answers_that_overlap_are_dropped_too(tmp_path: Path) -> None:
    free = _writer().write(tmp_path / "free", _ignore)
    document = free.documents[5]
    banned = WordChat().decode(document.ids[document.answer_start :].tolist())
    kept = _writer(excluded=[banned]).write(tmp_path / "kept", _ignore)
    assert 5 not in {document.index for document in kept.documents}
    assert kept.num_excluded >= 1


def test_chunks_that_are_there_are_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synthesis, "_CHUNK_SIZE", 4)
    first = _writer().write(tmp_path, _ignore)
    chunks = sorted(tmp_path.iterdir())
    assert len(chunks) == 3
    chunks[1].unlink()
    stamps = {path: path.stat().st_mtime_ns for path in (chunks[0], chunks[2])}
    again = _writer().write(tmp_path, _ignore)
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    for one, other in zip(first.documents, again.documents, strict=True):
        assert torch.equal(one.ids, other.ids)
        assert torch.equal(one.top_logprobs, other.top_logprobs)


def test_progress_reaches_the_end(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    _writer().write(tmp_path, lambda done, total: seen.append((done, total)))
    assert seen[-1] == (12, 12)


def test_a_folder_of_other_settings_is_refused_with_both_values(tmp_path: Path) -> None:
    claim_folder(tmp_path, {"seed": 0, "temperatures": (0.0, 1.0)})
    claim_folder(tmp_path, {"seed": 0, "temperatures": (0.0, 1.0)})
    with pytest.raises(InvalidRequestError, match="seed=0, not 1"):
        claim_folder(tmp_path, {"seed": 1, "temperatures": (0.0, 1.0)})
