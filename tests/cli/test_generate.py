"""`specdec generate` on a tiny random model: same ids by every algorithm, clear refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deployments.cli.generate.output import STAGES
from tests.cli.conftest import Specdec
from tests.cli.tiny_folder import make_tiny_folder
from tests.deployments.text.tokenizers import text_model
from tests.tiny_models import tiny_model

Write = Callable[..., Path]
Generate = Callable[..., list[dict[str, Any]]]

PROMPTS = [
    {"id": "long", "prompt": "abcabcabcabcabcabc" * 3},
    {"id": "short", "prompt": "a"},
    {"id": "seeded", "prompt": "abab", "seed": 5, "temperature": 0.9, "max_tokens": 9},
    {"id": "chat", "messages": [{"role": "user", "content": "abcabc"}]},
    {"id": "ids", "prompt_token_ids": [5, 6, 7, 5, 6, 7]},
    {"question_id": 6, "turns": ["first", "second"]},
]


@pytest.fixture
def generate(specdec: Specdec, tiny_folder: Path, tmp_path: Path) -> Generate:
    """Run the command and return its output lines."""

    def run(path: Path, *flags: object) -> list[dict[str, Any]]:
        output = tmp_path / "output.jsonl"
        base = ["generate", tiny_folder, "--input", path, "--output", output, "--max-tokens", 24]
        outcome = specdec(*base, "--kv-cache-tokens", 4096, *flags)
        assert outcome.status == 0, outcome.err
        return [json.loads(line) for line in output.read_text().splitlines()]

    return run


@pytest.mark.covering(1)
@pytest.mark.parametrize("temperature", [0, 0.8])
@pytest.mark.parametrize(
    "speculation",
    [
        ["--spec-method", "ngram", "--spec-tokens", 3],
        ["--spec-model", "SELF", "--spec-tokens", 4],
        ["--spec-method", "none"],
        ["--spec-tokens", 0],
        ["--batch-size", 1],
        ["--sort-by-length", "--batch-size", 2, "--window", 2],
        ["--algorithm", "eqspec", "--batch-size", 3, "--sort-by-length"],
        ["--algorithm", "exspec-padded", "--batch-size", 2, "--spec-model", "SELF"],
    ],
    ids=lambda flags: " ".join(map(str, flags)),
)
def test_speculation_emits_the_ids_of_plain_decoding(
    generate: Generate,
    write_lines: Write,
    tiny_folder: Path,
    temperature: float,
    speculation: list[object],
) -> None:
    path = write_lines(*PROMPTS)
    sampling = ["--temperature", temperature, "--seed", 11]
    flags = [tiny_folder if flag == "SELF" else flag for flag in speculation]
    plain = generate(path, "--algorithm", "autoregressive", *sampling)
    speculated = generate(path, *sampling, *flags)
    assert [line["output_token_ids"] for line in speculated] == [
        line["output_token_ids"] for line in plain
    ]
    assert [line["finish_reason"] for line in speculated] == [
        line["finish_reason"] for line in plain
    ]


@pytest.mark.parametrize("algorithm", ["exspec", "eqspec", "exspec-padded"])
def test_output_is_in_input_order_with_the_documented_fields(
    generate: Generate, write_lines: Write, algorithm: str
) -> None:
    """Defect 7 of the published code: outputs in order of length."""
    flags = ["--algorithm", algorithm, "--sort-by-length", "--batch-size", 2]
    lines = generate(write_lines(*PROMPTS), *flags)
    assert [line["id"] for line in lines] == ["long", "short", "seeded", "chat", "ids", 6]
    assert set(lines[0]) == {
        "id",
        "prompt_token_ids",
        "output_token_ids",
        "text",
        "finish_reason",
        "num_rounds",
        "num_drafted",
        "num_accepted",
    }
    assert lines[4]["prompt_token_ids"] == [5, 6, 7, 5, 6, 7]
    assert len(lines[2]["output_token_ids"]) <= 9


RULES = {"logit_bias": {"70": 3, "71": -100}, "bad_words": ["a", "bc"], "logprobs": 2}
RULED = [
    {"id": "flags", "prompt": "abcabcabc"},
    {"id": "own", "prompt": "abab", "presence_penalty": -1.5, "min_tokens": 12, **RULES},
    {"id": "few", "prompt_token_ids": [5, 6], "allowed_token_ids": list(range(60, 90)), **RULES},
]
RULE_FLAGS = [
    *("--temperature", 0.9, "--seed", 4, "--logprobs", 3, "--min-tokens", 5),
    *("--presence-penalty", 0.5, "--frequency-penalty", 0.25, "--repetition-penalty", 1.2),
]


def test_log_probabilities_are_those_of_plain_decoding(
    generate: Generate, write_lines: Write
) -> None:
    path = write_lines(*RULED)
    speculated = generate(path, *RULE_FLAGS, "--spec-tokens", 3, "--numerics", "exact")
    plain = generate(
        path, *RULE_FLAGS, "--algorithm", "autoregressive", "--numerics", "exact", "--batch-size", 1
    )
    for mine, right in zip(speculated, plain, strict=True):
        for name in ("output_token_ids", "logprobs", "text"):
            assert mine[name] == right[name]
    for line, count in zip(speculated, (3, 2, 2), strict=True):
        assert [e["token_id"] for e in line["logprobs"]] == line["output_token_ids"]
        assert {len(entry["top_logprobs"]) for entry in line["logprobs"]} == {count}
        for entry in line["logprobs"]:
            values = [other["logprob"] for other in entry["top_logprobs"]]
            assert values == sorted(values, reverse=True)
            assert entry["logprob"] <= values[0] < 0


def test_a_line_follows_its_own_rules(generate: Generate, write_lines: Write) -> None:
    flags, own, few = generate(write_lines(*RULED), *RULE_FLAGS)
    assert len(flags["output_token_ids"]) >= 5
    assert len(own["output_token_ids"]) >= 12
    assert "a" not in own["text"]
    assert "bc" not in own["text"]
    for line in (own, few):
        assert 71 not in line["output_token_ids"]
    assert set(few["output_token_ids"]) <= set(range(60, 90))


def test_a_line_is_answered_as_if_it_were_alone(generate: Generate, write_lines: Write) -> None:
    together = generate(write_lines(*PROMPTS), "--temperature", 0.8, "--seed", 3)
    alone = generate(write_lines(PROMPTS[3]), "--temperature", 0.8, "--seed", 3)
    assert alone[0]["output_token_ids"] == together[3]["output_token_ids"]


def test_the_models_answer_is_context_of_the_next_turn(
    generate: Generate, write_lines: Write
) -> None:
    path = write_lines({"id": 1, "turns": ["ab", "cd"]}, {"id": 2, "prompt": "x"})
    first, second, other = generate(path, "--turns", "all", "--max-tokens", 6)
    assert [(line["id"], line["turn"]) for line in (first, second, other)] == [
        (1, 0),
        (1, 1),
        (2, 0),
    ]
    beginning = first["prompt_token_ids"]
    assert second["prompt_token_ids"][: len(beginning)] == beginning
    assert len(second["prompt_token_ids"]) > len(beginning)


def test_a_raw_prompt_has_no_chat_template(generate: Generate, write_lines: Write) -> None:
    path = write_lines({"prompt": "abc"})
    assert len(generate(path, "--raw-prompt")[0]["prompt_token_ids"]) == 3
    assert len(generate(path)[0]["prompt_token_ids"]) > 3


def test_another_chat_template_replaces_the_models_own(
    generate: Generate, write_lines: Write, tmp_path: Path
) -> None:
    template = tmp_path / "template.jinja"
    template.write_text("{{ messages[0].content }}")
    lines = generate(write_lines({"prompt": "abc"}), "--chat-template", template)
    assert len(lines[0]["prompt_token_ids"]) == 3


def test_stats_with_self_draft_show_full_acceptance(
    generate: Generate, write_lines: Write, tiny_folder: Path, tmp_path: Path
) -> None:
    stats_file = tmp_path / "stats.json"
    flags = ["--spec-model", tiny_folder, "--spec-tokens", 3, "--stats", stats_file]
    flags += ["--spec-policy", "fixed"]
    lines = generate(write_lines({"prompt": "abcd"}), *flags, "--ignore-eos", "--max-tokens", 25)
    stats = json.loads(stats_file.read_text())
    assert stats["tokens"] == len(lines[0]["output_token_ids"]) == 25
    assert stats["acceptance_per_position"] == [1.0, 1.0, 1.0]
    assert stats["drafted"] == stats["accepted"] == lines[0]["num_accepted"]
    assert stats["mean_acceptance_length"] > 3
    assert set(stats["seconds_by_stage"]) == set(STAGES)
    assert stats["tokens_per_second"] == pytest.approx(25 / stats["seconds"])
    assert 0 <= stats["equal_length_group_share"] <= 1


def test_stats_show_what_alignment_costs(
    generate: Generate, write_lines: Write, tmp_path: Path
) -> None:
    found = {}
    for algorithm in ("eqspec", "exspec"):
        file = tmp_path / f"{algorithm}.json"
        flags = ["--algorithm", algorithm, "--batch-size", 4, "--stats", file]
        generate(write_lines(*PROMPTS), *flags, "--ignore-eos")
        found[algorithm] = json.loads(file.read_text())
    assert found["eqspec"]["aligned_bytes"] > 0
    assert found["eqspec"]["seconds_by_stage"]["align"] > 0
    assert found["exspec"]["aligned_bytes"] == found["exspec"]["stacked_bytes"] == 0


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ({"prompt": "x" * 600}, "line 2"),
        ({"prompt": "x", "top_p": 0}, "line 2: top_p"),
        ({"prompt": "x", "temperature": -1}, "line 2: temperature"),
        ({"prompt": "x", "max_tokens": 10**9}, "line 2"),
        ({"prompt_token_ids": [10**6]}, "line 2: token id 1000000"),
        ({"prompt_token_ids": []}, "line 2: the prompt is empty"),
        ({"prompt": "x", "logit_bias": {"9999": 1}}, "line 2: logit_bias: token id 9999"),
        ({"prompt": "x", "allowed_token_ids": [-1]}, "line 2: allowed_token_ids: token id -1"),
        ({"prompt": "x", "bad_words": [""]}, "line 2: a bad word is empty"),
        ({"prompt": "x", "min_tokens": 129}, "line 2: min_tokens must be in 0..max_tokens=128"),
        ({"prompt": "x", "logprobs": 21}, "line 2: logprobs must be in 0..20, got 21"),
    ],
)
def test_a_request_that_cannot_run_names_its_line(
    specdec: Specdec,
    tiny_folder: Path,
    write_lines: Write,
    tmp_path: Path,
    line: object,
    complaint: str,
) -> None:
    path = write_lines({"prompt": "fine"}, line)
    outcome = specdec("generate", tiny_folder, "--input", path, "--output", tmp_path / "out")
    assert outcome.status == 2
    assert complaint in outcome.err


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--temperature", "nan"], "temperature"),
        (["--top-p", 2], "top_p"),
        (["--seed", -1], "seed"),
        (["--presence-penalty", 3], "presence_penalty must be in -2..2, got 3.0"),
        (["--repetition-penalty", 0], "repetition_penalty"),
        (["--min-tokens", 129], "min_tokens must be in 0..max_tokens=128, got 129"),
        (["--logprobs", 21], "logprobs must be in 0..20, got 21"),
        (["--limit", 1, "--sample", 1], "--limit and --sample"),
        (["--turns", "all", "--raw-prompt"], "--raw-prompt"),
        (["--window", 2, "--batch-size", 4], "window"),
        (["--spec-tokens", 99], "num_draft_tokens"),
        (["--spec-method", "draft_model"], "--spec-model"),
        (["--spec-method", "ngram", "--spec-model", "x"], "--spec-model"),
        (["--spec-model", "/no/such/draft"], "/no/such/draft"),
        (["--device", "tpu"], "device"),
        (["--stats", "/no/such/folder/stats.json"], "/no/such/folder"),
        (["--max-model-len", 100_000], "max_model_len"),
    ],
)
def test_flags_that_do_not_fit_are_refused(
    specdec: Specdec,
    tiny_folder: Path,
    write_lines: Write,
    tmp_path: Path,
    flags: list[object],
    complaint: str,
) -> None:
    path = write_lines({"prompt": "fine"})
    base = ["generate", tiny_folder, "--input", path, "--output", tmp_path / "out"]
    outcome = specdec(*base, *flags)
    assert outcome.status == 2
    assert complaint in outcome.err


def test_a_missing_model_folder_is_named(specdec: Specdec, write_lines: Write) -> None:
    path = write_lines({"prompt": "fine"})
    outcome = specdec("generate", "/no/such/model", "--input", path, "--output", "/dev/null")
    assert outcome.status != 0
    assert "/no/such/model" in outcome.err


def test_a_missing_input_file_is_named(specdec: Specdec) -> None:
    outcome = specdec("generate", "--input", "/no/such.jsonl", "--output", "/dev/null")
    assert outcome.status == 2
    assert "no/such.jsonl" in outcome.err


def test_a_draft_with_another_tokenizer_is_refused(
    specdec: Specdec, tiny_folder: Path, write_lines: Write, tmp_path: Path
) -> None:
    other = make_tiny_folder(tmp_path / "other", specials=("<|more|>",))
    path = write_lines({"prompt": "fine"})
    base = ["generate", tiny_folder, "--input", path, "--output", tmp_path / "out"]
    outcome = specdec(*base, "--spec-model", other)
    assert outcome.status == 2
    assert "tokenizer" in outcome.err


@pytest.mark.parametrize("speculation", [["--spec-method", "ngram"], ["--spec-method", "none"]])
def test_the_text_continues_the_prompts(
    specdec: Specdec, write_lines: Write, tmp_path: Path, speculation: list[str]
) -> None:
    """SentencePiece drops the space that begins a text; an answer begins none."""
    text = text_model("llama 2", tmp_path, begins=True)
    tiny_model("llama", vocab_size=text.vocab_size, eos_token_id=1).save_pretrained(tmp_path)
    question, word = text.encode("The capital of France is"), text.encode_part("Paris")[0]
    given = {"allowed_token_ids": [word], "max_tokens": 5}
    path = write_lines(
        {"prompt": "The capital of France is"} | given,
        {"prompt_token_ids": question} | given,
        {"prompt_token_ids": [text.encode("")[0]]} | given,
    )
    output = tmp_path / "out.jsonl"
    flags = ["--raw-prompt", "--kv-cache-tokens", 4096, *speculation]
    outcome = specdec("generate", tmp_path, "--input", path, "--output", output, *flags)
    assert outcome.status == 0, outcome.err
    texts = [json.loads(line)["text"] for line in output.read_text().splitlines()]
    assert texts == [" Paris" * 5, " Paris" * 5, ("Paris" + " Paris" * 4)]
