"""Write the model folders of a service under measurement.

The vocabulary is small because logits are the only arithmetic that is left to the CPU. The
tokenizer is the demo's with its first VOCAB_SIZE IDs and the merges that they allow. So text is
split, decoded and rendered as for the demo, in shorter pieces. The weights do not matter.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from benchmarks.host_time.scripted import tiny_network
from benchmarks.host_time.served.shared_numbers import VOCAB_SIZE
from deployments.demo.models import resolve_model

MAX_POSITIONS = 8192
_DEMO = "smollm2-135m"
_END_ID = 2
"""ID of the demo's end of a turn."""
_TOKENIZER = "tokenizer.json"
_COPIED = ("tokenizer_config.json", "chat_template.jinja")


def write_model(folder: Path) -> None:
    """Write the files of a model, in a new folder. Raises SpecdecError without the demo model."""
    demo = Path(resolve_model(_DEMO))
    network = tiny_network(VOCAB_SIZE, MAX_POSITIONS)
    network.config.eos_token_id = _END_ID
    network.save_pretrained(folder)
    cut = cut_tokenizer(json.loads((demo / _TOKENIZER).read_text()), VOCAB_SIZE)
    (folder / _TOKENIZER).write_text(json.dumps(cut))
    for name in _COPIED:
        shutil.copy(demo / name, folder)


def cut_tokenizer(tokenizer: dict[str, Any], vocab_size: int) -> dict[str, Any]:
    """Return a BPE tokenizer with the IDs below `vocab_size` alone.

    Merges are in the order of the IDs that they make, so those that are left make only what is
    left.
    """
    model = tokenizer["model"]
    vocab = {token: number for token, number in model["vocab"].items() if number < vocab_size}
    merges = [
        merge for merge in model["merges"] if all(p in vocab for p in (*merge, "".join(merge)))
    ]
    added = [token for token in tokenizer["added_tokens"] if token["id"] < vocab_size]
    return {
        **tokenizer,
        "added_tokens": added,
        "model": {**model, "vocab": vocab, "merges": merges},
    }
