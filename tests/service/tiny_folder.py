"""A tiny random Llama with a real tokenizer and a chat template, as a Hugging Face folder."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, PreTrainedTokenizerFast

from tests.tiny_models import tiny_model

_CORPUS = (
    "The quick brown fox jumps over the lazy dog. Speculative decoding keeps what the target "
    "would have chosen. Größe, café, naïve, 日本語, emoji 🙂 and code: def f(x): return x + 1"
)
_TEMPLATE = (
    "{% for message in messages %}<|start|>{{ message['role'] }}\n{{ message['content'] }}<|end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


def save_tokenizer(folder: Path, corpus: str = _CORPUS) -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<|pad|>", "<|start|>", "<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator([corpus] * 4, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|end|>", pad_token="<|pad|>", bos_token="<|start|>"
    )
    tokenizer.chat_template = _TEMPLATE
    tokenizer.save_pretrained(folder)
    return tokenizer


def save_tiny_llama(folder: Path, *, noise: float = 0.0) -> Path:
    """`noise` moves the weights a little: a draft that is often, not always, right."""
    tokenizer = save_tokenizer(folder)
    model = tiny_model("llama", vocab_size=len(tokenizer), max_position_embeddings=1024)
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight += noise * torch.randn_like(weight)
    model.generation_config = GenerationConfig(eos_token_id=[2, 0], pad_token_id=0)
    model.save_pretrained(folder)
    return folder


def quantise(folder: Path) -> None:
    """By its configuration, which is what is looked at."""
    path = folder / "config.json"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps(settings | {"quantization_config": {"quant_method": "fp8"}}))
