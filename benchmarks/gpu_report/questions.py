"""The prompts of models with weights, as text."""

from __future__ import annotations

from transformers import PreTrainedTokenizerBase

_TASKS = (
    "Explain to a child how {} works.",
    "Write a short story in which {} plays a part.",
    "List five facts about {}.",
    "Give a summary of the history of {}.",
    "Write a Python function that models {}.",
    "Compare {} with something similar.",
    "Write an email that asks a colleague about {}.",
    "What are common mistakes with {}, and how are they avoided?",
)
_TOPICS = (
    "a bicycle",
    "the tides",
    "a search engine",
    "sourdough bread",
    "a chess clock",
    "the water cycle",
    "a lighthouse",
    "double-entry bookkeeping",
)


def questions(count: int) -> list[str]:
    """Up to 64 of them, no two alike."""
    made = [task.format(topic) for topic in _TOPICS for task in _TASKS]
    return made[:count]


def question_ids(tokenizer: PreTrainedTokenizerBase, count: int) -> list[tuple[int, ...]]:
    """Through the chat template, where there is one."""
    prompts = []
    for text in questions(count):
        if tokenizer.chat_template is not None:
            turn = [{"role": "user", "content": text}]
            text = str(
                tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
            )
        prompts.append(tuple(tokenizer(text, add_special_tokens=False)["input_ids"]))
    return prompts
