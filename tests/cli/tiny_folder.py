"""A model folder of a few kilobytes: a random two-layer Llama and a tokenizer of single bytes."""

from __future__ import annotations

from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tests.tiny_models import tiny_model

CHAT_TEMPLATE = (
    "{% for message in messages %}<|start|>{{ message.role }}\n{{ message.content }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


def make_tiny_folder(folder: Path, *, seed: int = 0, specials: tuple[str, ...] = ()) -> Path:
    """Save model and tokenizer; `specials` after the first two make another tokenizer of it."""
    names = ("<|end|>", "<|start|>", *specials)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: index for index, token in enumerate((*names, *alphabet))}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in names])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|end|>",
        pad_token="<|end|>",
        chat_template=CHAT_TEMPLATE,
    ).save_pretrained(folder)
    model = tiny_model("llama", seed=seed, vocab_size=len(vocab), eos_token_id=0)
    model.save_pretrained(folder)
    return folder
