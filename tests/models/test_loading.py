"""Loading: what a folder gives, and what is said of one that gives nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from huggingface_hub.utils import filter_repo_objects
from torch import nn
from transformers import T5Config

from specdec_core.batch_invariance import linear as exact_linear
from specdec_core.batch_invariance.linear import ExactLinear
from specdec_core.batch_invariance.size_classes import SizeSet
from specdec_core.config import Numerics
from specdec_core.errors import InvalidRequestError, ModelNotSupportedError, NotExactError
from specdec_core.kv_cache.spec import FullAttentionSpec
from specdec_core.loading import files, memory
from specdec_core.loading import loader as loading
from specdec_core.loading.loader import DType, LoadConfig, load_model, load_pair, load_tokenizer
from specdec_core.loading.memory import available_host_bytes, default_kv_blocks
from specdec_core.loading.memory_plan import MemoryPlan, build_runner
from specdec_core.loading.tokenizers import check_same_tokenizer
from specdec_core.model import score
from specdec_core.models.llama import LlamaModel
from specdec_core.worker.model_runner import ModelRunner
from tests.models.folders import CORPUS, save_model, tiny_tokenizer
from tests.tiny_models import tiny_model

SMALL = LoadConfig(kv_cache_tokens=1024, numerics=Numerics.FAST)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return save_model(tmp_path / "model", end_token_ids=(7, 11))


def test_a_folder_becomes_a_model_that_decodes(folder: str) -> None:
    loaded = load_model(folder, SMALL)
    ids = [5, 6, 7, 8]
    logits = score(loaded.model, [(loaded.model.allocate(), ids, 4)])
    with torch.no_grad():
        expected = tiny_model("llama")(input_ids=torch.tensor([ids])).logits[0]
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)
    assert loaded.name == folder
    assert loaded.model.vocab_size == len(load_tokenizer(folder)) < 97
    assert loaded.model.num_blocks == 64


def test_every_end_id_of_the_generation_config_and_the_config_counts(folder: str) -> None:
    assert load_model(folder, SMALL).end_token_ids == {2, 7, 11}


def test_the_digest_follows_the_files_not_the_place(folder: str, tmp_path: Path) -> None:
    same = save_model(tmp_path / "same", end_token_ids=(7, 11))
    other = save_model(tmp_path / "other", "qwen3")
    digests = [load_model(path, SMALL).digest for path in (folder, same, other)]
    assert digests[0] == digests[1] != digests[2]
    assert all(len(digest) == 64 for digest in digests)


def test_dtype_and_length_follow_the_configuration(folder: str) -> None:
    config = LoadConfig(dtype=DType.BFLOAT16, max_model_len=100, kv_cache_tokens=128, device="cpu")
    model = load_model(folder, config).model
    assert model.max_model_len == 100
    slot = model.allocate()
    assert score(model, [(slot, [1, 2, 3], 1)]).dtype == torch.bfloat16


def test_rotary_embeddings_do_not_look_for_the_longest_row(folder: str) -> None:
    config = json.loads(Path(folder, "config.json").read_text())
    config["rope_parameters"] |= {"rope_type": "dynamic", "factor": 2.0}
    Path(folder, "config.json").write_text(json.dumps(config))
    decoder = load_model(folder, SMALL).model.module
    assert isinstance(decoder, LlamaModel)
    assert decoder.rotary.rope_type == "default"


def test_bfloat16_logits_equal_those_of_transformers_bit_for_bit(folder: str) -> None:
    """One row without a cache: packed linears must not change a bit."""
    model = load_model(folder, LoadConfig(dtype=DType.BFLOAT16, kv_cache_tokens=1024)).model
    stock = tiny_model("llama").bfloat16()
    with torch.no_grad():
        expected = stock(input_ids=torch.tensor([[5]])).logits[0].float()
    assert torch.equal(score(model, [(model.allocate(), [5], 1)]), expected)


@pytest.mark.parametrize("path", ["/nowhere/model", "./nowhere", "~/nowhere", "a/b/c"])
def test_a_missing_folder_is_named(path: str) -> None:
    with pytest.raises(ModelNotSupportedError, match="no model folder at " + path):
        load_model(path)


LISTING = (
    "config.json",
    "tokenizer.json",
    "tokenizer.model",
    "chat_template.jinja",
    "model.safetensors.index.json",
    "model-00000-of-00002.safetensors",
    *("original/model.safetensors", "original/config.json", "metal/model.bin", "onnx/model.onnx"),
    *("consolidated.safetensors", "consolidated.00.pth", "model.gguf", "pytorch_model.bin"),
    *("tf_model.h5", "flax_model.msgpack", "README.md"),
)


def test_weights_are_downloaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """gpt-oss has them thrice, Mistral's models twice."""
    fetched: list[str] = []

    def snapshot(name: str, revision: str | None, **patterns: list[str]) -> str:
        fetched.extend(filter_repo_objects(LISTING, **patterns))
        return "folder"

    monkeypatch.setattr(files, "snapshot_download", snapshot)
    files.local_folder("openai/gpt-oss-20b")
    assert tuple(fetched) == LISTING[:6]


def test_what_loading_is_at_is_told(folder: str) -> None:
    told: list[str] = []
    load_model(folder, replace(SMALL, on_stage=told.append, numerics=Numerics.EXACT))
    assert told[0] == "reading weights"
    assert told[-1] == "proving exact numerics"


def test_a_folder_without_its_parts_is_refused_by_name(folder: str) -> None:
    for name, reason in (
        ("tokenizer.json", "no usable tokenizer"),
        ("model.safetensors", "no .*safetensors weights"),
        ("config.json", "no usable config.json"),
    ):
        for file in Path(folder).glob(name.replace("tokenizer.json", "tokenizer*")):
            file.unlink()
        with pytest.raises(ModelNotSupportedError, match=reason) as refusal:
            load_model(folder, SMALL)
        assert folder in str(refusal.value)


def test_broken_weights_are_refused(folder: str) -> None:
    (Path(folder) / "model.safetensors").write_bytes(b"\x10\x00\x00\x00\x00\x00\x00\x00broken")
    with pytest.raises(ModelNotSupportedError, match="cannot be loaded"):
        load_model(folder, SMALL)


def test_incomplete_weights_are_refused(folder: str) -> None:
    """transformers would fill the third layer with random numbers."""
    config_file = Path(folder) / "config.json"
    config = json.loads(config_file.read_text())
    config_file.write_text(json.dumps(config | {"num_hidden_layers": 3}))
    with pytest.raises(ModelNotSupportedError, match=r"lacks \d+ weights.*layers\.2"):
        load_model(folder, SMALL)


def test_an_unsupported_model_is_refused_before_its_weights_are_read(folder: str) -> None:
    config_file = Path(folder) / "config.json"
    config = json.loads(config_file.read_text())
    config_file.write_text(json.dumps(config | {"quantization_config": {"quant_method": "awq"}}))
    (Path(folder) / "model.safetensors").unlink()
    with pytest.raises(ModelNotSupportedError, match="quantised"):
        load_model(folder, SMALL)


def test_remote_code_is_never_run(folder: str) -> None:
    config_file = Path(folder) / "config.json"
    config = json.loads(config_file.read_text())
    remote = {"model_type": "unheard_of", "auto_map": {"AutoConfig": "evil.EvilConfig"}}
    config_file.write_text(json.dumps(config | remote))
    (Path(folder) / "evil.py").write_text("raise SystemExit('ran')")
    with pytest.raises(ModelNotSupportedError):
        load_model(folder, SMALL)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"device": "tpu"}, "device must be"),
        ({"max_model_len": 0}, "max_model_len must be at least 1, got 0"),
        ({"kv_cache_tokens": -5}, "kv_cache_tokens must be at least 1, got -5"),
    ],
)
def test_absurd_configurations_are_the_callers_mistake(
    changes: dict[str, object], reason: str
) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        LoadConfig(**changes)


def test_a_cache_too_small_for_one_sequence_is_refused(folder: str) -> None:
    with pytest.raises(
        InvalidRequestError, match=r"511 tokens cannot hold one .*max_model_len=512"
    ):
        load_model(folder, LoadConfig(kv_cache_tokens=511))


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there_is_named(folder: str) -> None:
    with pytest.raises(InvalidRequestError, match="device cuda was asked for"):
        load_model(folder, LoadConfig(device="cuda", kv_cache_tokens=1024))


def test_a_pair_shares_its_tokenizer(folder: str, tmp_path: Path) -> None:
    draft = save_model(tmp_path / "draft", seed=1)
    pair = load_pair(folder, draft, SMALL)
    assert pair.draft is not None
    assert pair.draft.model.vocab_size == pair.target.model.vocab_size
    assert load_pair(folder, None, SMALL).draft is None


def test_a_draft_with_another_tokenizer_is_refused_with_both_sizes(
    folder: str, tmp_path: Path
) -> None:
    draft = save_model(tmp_path / "draft", tokenizer=tiny_tokenizer(CORPUS[:1]))
    sizes = f"has {len(load_tokenizer(folder))} ids, the draft {len(load_tokenizer(draft))}"
    with pytest.raises(ModelNotSupportedError, match=sizes):
        load_pair(folder, draft, SMALL)


def test_tokenizers_of_equal_size_are_compared_by_content() -> None:
    check_same_tokenizer(tiny_tokenizer(), tiny_tokenizer())
    with pytest.raises(
        ModelNotSupportedError, match=r"id 4 is .* in the target and .* in the draft"
    ):
        check_same_tokenizer(
            tiny_tokenizer(specials=("<x>",)), tiny_tokenizer(specials=("<y>",), vocab_size=60)
        )
    with pytest.raises(ModelNotSupportedError):
        check_same_tokenizer(tiny_tokenizer(), tiny_tokenizer([word[::-1] for word in CORPUS]))


def test_the_default_cache_is_a_share_of_the_free_memory() -> None:
    num_blocks = default_kv_blocks(FullAttentionSpec(16, 23_040), logit_bytes=2**20)
    assert 0 < num_blocks * 23_040 < available_host_bytes() * 0.5


def test_the_default_cache_leaves_room_for_the_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_host_bytes", lambda: 4000)
    assert default_kv_blocks(FullAttentionSpec(16, 10), logit_bytes=0) == 100
    assert default_kv_blocks(FullAttentionSpec(16, 10), logit_bytes=2000) == 50
    assert default_kv_blocks(FullAttentionSpec(16, 10), logit_bytes=5000) == 0


def test_a_model_without_positions_is_refused_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "t5"
    T5Config().save_pretrained(folder)
    with pytest.raises(ModelNotSupportedError, match="t5: encoder-decoder"):
        load_model(str(folder), SMALL)


@pytest.mark.parametrize("numerics", [Numerics.EXACT, Numerics.FAST])
def test_linears_are_exact_before_the_cache_takes_its_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, numerics: Numerics
) -> None:
    """The search needs memory, and so do passes of exact linears, which the plan measures."""
    are_exact: list[bool] = []

    def recording(weights: nn.Module, placing: MemoryPlan) -> ModelRunner:
        are_exact.append(any(isinstance(m, ExactLinear) for m in weights.modules()))
        return build_runner(weights, placing)  # type: ignore[arg-type]

    monkeypatch.setattr(loading, "build_runner", recording)
    config = LoadConfig(device="cpu", kv_cache_tokens=1024, numerics=numerics)
    loaded = load_model(save_model(tmp_path / "model"), config)
    assert loaded.model.numerics is numerics
    assert are_exact == [numerics is Numerics.EXACT]


def test_a_search_without_memory_leaves_the_model_fast(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def full(linear: object) -> SizeSet:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(exact_linear, "find_row_range", full)
    folder = save_model(tmp_path / "model")
    config = LoadConfig(device="cpu", kv_cache_tokens=1024, numerics=Numerics.AUTO)
    assert load_model(folder, config).model.numerics is Numerics.FAST
    assert "not enough memory to find the size classes" in caplog.text
    with pytest.raises(NotExactError, match="not enough memory to find the size classes"):
        load_model(folder, replace(config, numerics=Numerics.EXACT))
