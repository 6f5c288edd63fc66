"""What is started: specdec as it ships, peers with their own flags."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.peers.engines import READY
from benchmarks.served_peers.engines import NAMES, SERVERS, Site, inherited
from specdec_core.errors import InvalidRequestError


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """With everything that peers need, all of it empty."""
    model = tmp_path / "tiny"
    model.mkdir()
    (model / "config.json").write_text("{}")
    for file in (
        "vllm/bin/python",
        f"vllm/{READY}",
        "llama.cpp/build/bin/llama-server",
        "llama.cpp/build/bin/llama-quantize",
        "llama.cpp/convert_hf_to_gguf.py",
        "models/tiny-llama-bf16/model.gguf",
        "models/tiny-llama-Q4_0/model.gguf",
    ):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    return Site(
        model=str(model),
        venvs=tmp_path,
        llama_cpp=tmp_path / "llama.cpp",
        port=18400,
        threads=2,
        max_streams=32,
        max_model_len=2048,
    )


def test_specdec_has_nothing_but_the_model_and_its_ports(site: Site) -> None:
    command = SERVERS["specdec"].command(site)
    assert command[0] == sys.executable
    assert command[3:] == ["serve", site.model, "--port", "18400", "--grpc-port", "18401"]
    assert SERVERS["specdec"].variables(site) == {}


def test_llama_server_has_a_slot_and_its_context_for_each_stream(site: Site) -> None:
    command = SERVERS["llama-bf16"].command(site)
    assert Path(command[0]).name == "llama-server"
    flags = dict(zip(command[1:-1:2], command[2::2], strict=True))
    assert (flags["-np"], flags["-c"], flags["-t"]) == ("32", "65536", "2")
    assert "--spec-type" not in command
    assert "Q4_0" in SERVERS["llama-q4"].command(site)[2]
    assert SERVERS["llama-bf16-ngram"].command(site)[-2:] == ["--spec-type", "ngram-simple"]


def test_vllm_is_started_from_its_environment_and_bound_to_the_cores(site: Site) -> None:
    command = SERVERS["vllm"].command(site)
    assert command[:3] == [str(site.venvs / "vllm/bin/vllm"), "serve", site.folder]
    assert command[command.index("--max-num-seqs") + 1] == "32"
    assert SERVERS["vllm"].variables(site)["VLLM_CPU_OMP_THREADS_BIND"] == "0-1"
    assert "--speculative-config" in SERVERS["vllm-ngram"].command(site)
    assert "bfloat16" in command
    assert "float32" in SERVERS["vllm-f32"].command(site)


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith(("vllm", "llama"))])
def test_a_missing_peer_says_what_it_needs(site: Site, name: str, tmp_path: Path) -> None:
    nowhere = replace(site, venvs=tmp_path / "nowhere", llama_cpp=None)
    with pytest.raises(InvalidRequestError, match=r"setup --venvs|needs --llama-cpp"):
        SERVERS[name].command(nowhere)
    unbuilt = replace(nowhere, llama_cpp=tmp_path)
    with pytest.raises(InvalidRequestError, match=r"setup --venvs|convert_hf_to_gguf|build llama"):
        SERVERS[name].command(unbuilt)


def test_a_server_does_not_inherit_this_programs_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("KEPT", "1")
    assert "OMP_NUM_THREADS" not in inherited()
    assert inherited()["KEPT"] == "1"
