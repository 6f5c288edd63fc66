"""Model folders made by the tests: a tiny random model with a tokenizer of its own."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.trainers import BpeTrainer
from transformers import GenerationConfig, PreTrainedTokenizerFast

from tests.tiny_models import tiny_model

CORPUS = ["the cat sat on the mat", "the dog ate the cat", "a mat and a dog sat on a cat"]


def tiny_tokenizer(
    corpus: list[str] = CORPUS, vocab_size: int = 60, specials: tuple[str, ...] = ()
) -> PreTrainedTokenizerFast:
    backend = Tokenizer(BPE(unk_token="<unk>"))
    backend.pre_tokenizer = Whitespace()
    trainer = BpeTrainer(
        vocab_size=vocab_size, special_tokens=["<pad>", "<s>", "</s>", "<unk>", *specials]
    )
    backend.train_from_iterator(corpus, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
    )


def save_model(
    folder: Path,
    architecture: str = "llama",
    *,
    seed: int = 0,
    tokenizer: PreTrainedTokenizerFast | None = None,
    end_token_ids: tuple[int, ...] = (2,),
) -> str:
    """Write a loadable folder; its embedding has more rows (97) than the tokenizer ids."""
    model = tiny_model(architecture, seed=seed)
    model.generation_config = GenerationConfig(eos_token_id=list(end_token_ids))
    model.save_pretrained(folder)
    (tokenizer or tiny_tokenizer()).save_pretrained(folder)
    return str(folder)
