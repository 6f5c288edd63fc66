"""`specdec serve`: flags over environment over file, and what is refused before Ray starts."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from deployments.cli.serve_flags import service_config
from deployments.config.service import UnknownFieldsMode
from specdec_core.config import Numerics, SpecMethod
from specdec_core.errors import InvalidRequestError
from tests.cli.conftest import Specdec


def test_a_flag_wins_over_the_environment_and_that_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "service.yaml"
    file.write_text("port: 1111\ngrpc_port: 2222\nmax_queued: 3\n")
    monkeypatch.setenv("SPECDEC_PORT", "4444")
    monkeypatch.setenv("SPECDEC_GRPC_PORT", "5555")
    config = service_config(file, {"port": 6666, "host": None})
    assert (config.port, config.grpc_port, config.scheduler.max_queued) == (6666, 5555, 3)
    assert config.host == "127.0.0.1"


def test_numerics_are_a_setting_like_others() -> None:
    config = service_config(None, {"numerics": "exact"})
    assert config.loading.numerics is Numerics.EXACT
    assert config.deployable() == {"numerics": "exact"}
    assert service_config(None, {}).loading.numerics is Numerics.AUTO


def test_vllms_speculative_config_is_understood() -> None:
    spec = '{"method": "ngram", "num_speculative_tokens": 7}'
    config = service_config(None, {"speculative_config": spec})
    assert (config.method, config.speculation.spec_tokens) == (SpecMethod.NGRAM, 7)


def test_parsers_have_vllms_names_and_travel_to_the_cluster() -> None:
    flags = {"tool_call_parser": "hermes", "reasoning_parser": "qwen3"}
    assert service_config(None, flags).deployable() == flags
    plain = service_config(None, {"enable_auto_tool_choice": True})
    assert (plain.tool_call_parser, plain.reasoning_parser) == ("auto", "auto")
    assert plain.deployable() == {}


def test_unknown_request_fields_are_ignored_or_refused() -> None:
    assert service_config(None, {}).unknown_fields is UnknownFieldsMode.WARN
    config = service_config(None, {"unknown_fields": "refuse"})
    assert config.unknown_fields is UnknownFieldsMode.REFUSE


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ({"unknown_fields": "perhaps"}, "unknown_fields"),
        ({"tool_call_parser": "hermess"}, "tool_call_parser: .* Did you mean 'hermes'"),
        ({"reasoning_parser": "x"}, "reasoning_parser: 'x' is not a known format. Known"),
        ({"enable_auto_tool_choice": False}, "set tool_call_parser to none"),
        ({"speculative_config": "{"}, "not JSON"),
        ({"speculative_config": '{"metod": "ngram"}'}, "metod"),
        ({"port": 99_999}, "port: Input should be less than or equal to 65535, got 99999"),
        ({"max_num_seqs": 2, "window": 1}, "window"),
        ({"model": "m", "spec_method": SpecMethod.DRAFT_MODEL}, "spec_model"),
    ],
)
def test_settings_that_do_not_fit_are_refused(flags: dict[str, object], complaint: str) -> None:
    with pytest.raises(InvalidRequestError, match=complaint):
        service_config(None, flags)


@pytest.mark.parametrize("text", ["prot: 1\n", "[1]\n", "a: [\n", "1: 2\n"])
def test_a_file_with_unknown_keys_or_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "service.yaml"
    file.write_text(text)
    with pytest.raises(InvalidRequestError):
        service_config(file, {})


def test_a_mistake_shows_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidRequestError, match=r"^api_keys\.\d: .*valid string$") as caught:
        service_config(None, {"api_key": [4711]})
    assert "4711" not in str(caught.value)


def test_print_config_prints_what_would_be_deployed(specdec: Specdec) -> None:
    flags = ("--port", 8123, "--spec-tokens", 6, "--tool-call-parser", "openai")
    outcome = specdec("serve", "--print-config", *flags, "--enable-auto-tool-choice")
    assert outcome.status == 0, outcome.err
    text = yaml.safe_load(outcome.out)
    assert text["http_options"]["port"] == 8123
    assert text["applications"][0]["args"]["spec_tokens"] == 6
    assert text["applications"][0]["args"]["tool_call_parser"] == "openai"
