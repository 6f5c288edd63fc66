"""Loads tokenizers and checks that two of them give every ID the same meaning."""

from __future__ import annotations

import json
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from specdec_core.errors import ModelNotSupportedError
from specdec_core.loading.files import local_folder


def load_tokenizer(path_or_id: str, revision: str | None = None) -> PreTrainedTokenizerBase:
    """Return the tokenizer of a folder or hub ID. Raises ModelNotSupportedError when there is
    none."""
    folder = local_folder(path_or_id, revision)
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            folder, trust_remote_code=False, local_files_only=True
        )
    except (OSError, ValueError) as error:
        raise ModelNotSupportedError(f"no usable tokenizer in {folder}: {error}") from error
    return tokenizer


def check_same_tokenizer(target: PreTrainedTokenizerBase, draft: PreTrainedTokenizerBase) -> None:
    """Raise ModelNotSupportedError unless both map the same IDs to the same text."""
    difference = _first_difference(target, draft)
    if difference is not None:
        raise ModelNotSupportedError(
            f"draft and target must share a tokenizer: the target has {len(target)} ids, "
            f"the draft {len(draft)}; {difference}"
        )


def _first_difference(
    target: PreTrainedTokenizerBase, draft: PreTrainedTokenizerBase
) -> str | None:
    ours, theirs = _token_by_id(target), _token_by_id(draft)
    for token_id in sorted(ours.keys() | theirs.keys()):
        if ours.get(token_id) != theirs.get(token_id):
            return (
                f"id {token_id} is {ours.get(token_id)!r} in the target "
                f"and {theirs.get(token_id)!r} in the draft"
            )
    if target.all_special_ids != draft.all_special_ids:
        return f"the special ids are {target.all_special_ids} and {draft.all_special_ids}"
    return None if _merges(target) == _merges(draft) else "their merges differ"


def _token_by_id(tokenizer: PreTrainedTokenizerBase) -> dict[int, str]:
    return {token_id: token for token, token_id in tokenizer.get_vocab().items()}


def _merges(tokenizer: PreTrainedTokenizerBase) -> Any:
    """Return the merge rules of a BPE tokenizer, or None if it shows none."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return None if backend is None else json.loads(backend.to_str())["model"].get("merges")
