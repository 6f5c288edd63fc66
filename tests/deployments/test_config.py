"""Settings: where they come from, which are refused, and what leaves for the cluster."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from deployments.app import (
    SERVICER_FUNCTION,
    build_app,
    coordinator_spec,
    num_cpus_needed,
    serve_config,
)
from deployments.cli.serve import ready_line
from deployments.config.api_keys import key_digest
from deployments.config.flags import declarations
from deployments.config.loading import LoadOptions
from deployments.config.service import ServiceConfig, load_service_config
from deployments.coordinator.server import process_settings
from deployments.text.answers.choosing import ChosenFormats
from specdec_core.config import (
    DRAFT_MODEL_METHODS,
    DType,
    KPolicyName,
    Numerics,
    OverlapMode,
    SpecMethod,
    SpeculationConfig,
)
from specdec_core.loading.loader import LoadConfig
from specdec_core.scheduler.batch_rules import OldestFirst
from specdec_core.scheduler.equal_length import EqualLength
from specdec_core.scheduler.grouping import make_grouping_policy


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for declared in declarations(ServiceConfig):
        monkeypatch.delenv(f"SPECDEC_{declared.name}".upper(), raising=False)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"modle": "x"}, "modle"),
        ({"tensor_parallel_size": 2}, "use target_replicas"),
        ({"quantization": "awq"}, "not supported yet: use dtype"),
        ({"enable_lora": True}, "merge the adapter"),
        ({"cells": 0}, "greater than or equal to 1"),
        ({"topology": "colocated"}, "topology=separate"),
        ({"model": "m", "spec_method": "draft_model"}, "needs spec_model"),
        ({"spec_method": "ngram", "spec_model": "x"}, "uses none"),
        ({"spec_tokens": 33}, "0..32, got 33"),
        ({"max_num_seqs": 8, "window": 4}, "window"),
        ({"max_num_seqs": 8, "window": 9, "max_group_size": 8}, "old name of max_num_seqs"),
        ({"prompt_lookup_min": 9}, "lookup_min=9, lookup_max=8"),
        ({"prompt_lookup_min": 5, "spec_policy": "fixed"}, "lookup_min=5, lookup_max=4"),
        ({"port": 70_000}, "65535"),
        ({"dtype": "int4"}, "'float16' or 'float32'"),
        ({"numerics": "bitwise"}, "'auto', 'exact' or 'fast'"),
        ({"audit_share": 1.5}, "less than or equal to 1"),
        ({"overlap": "sideways"}, "'auto', 'always' or 'never'"),
        ({"speculative_config": {"methd": "ngram"}}, "methd"),
        ({"speculative_config": {"method": "ngram"}, "spec_method": "ngram"}, "twice"),
        ({"speculative_config": "ngram"}, "must be an object"),
    ],
)
def test_mistakes_are_refused_with_what_to_use(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ServiceConfig.of(**settings)


@pytest.mark.parametrize(
    ("settings", "batch", "window"),
    [
        ({}, 64, 128),
        ({"target_num_gpus": 1}, 128, 256),
        ({"max_num_seqs": 16}, 16, 32),
        ({"max_num_seqs": 16, "window": 50}, 16, 50),
        ({"window": 20}, 20, 20),
    ],
)
def test_the_batch_and_the_window_have_a_setting_each(
    settings: dict[str, Any], batch: int, window: int
) -> None:
    pool = ServiceConfig.of(**settings).scheduler_config()
    assert (pool.max_group_size, pool.window) == (batch, window)
    assert pool.max_choices == batch * (pool.speculation.num_draft_tokens + 1), (
        "what memory is planned for"
    )


@pytest.mark.parametrize(
    ("settings", "policy"),
    [
        ({}, OldestFirst),
        ({"grouping": "equal_length"}, EqualLength),
        ({"group_by_shape": True}, EqualLength),
    ],
)
def test_a_setting_selects_the_grouping_policy(settings: dict[str, Any], policy: type) -> None:
    made = make_grouping_policy(ServiceConfig.of(**settings).scheduler_config())
    assert type(made) is policy


def test_the_name_of_a_grouping_policy_is_checked_at_the_start() -> None:
    with pytest.raises(ValueError, match="grouping must be one of oldest_first, "):
        ServiceConfig.of(grouping="by_mood")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 15),
        ({"target_num_gpus": 0}, 15),
        ({"target_num_gpus": 0.5}, 8),
        ({"spec_policy": "fixed"}, 4),
        ({"spec_policy": "fixed", "target_num_gpus": 1}, 4),
        ({"spec_policy": "schedule", "spec_schedule": ((1, 8, 3),)}, 4),
        ({"spec_tokens": 0}, 0),
        ({"spec_tokens": 4}, 4),
        ({"spec_tokens": 12, "spec_policy": "fixed", "target_num_gpus": 1}, 12),
    ],
)
def test_the_maximum_k_is_by_policy_and_device_unless_it_is_named(
    settings: dict[str, Any], expected: int
) -> None:
    """A fixed K of 15 would be slow nearly everywhere."""
    pool = ServiceConfig.of(**settings).scheduler_config()
    assert pool.speculation.num_draft_tokens == expected


def test_a_k_that_is_named_travels_to_the_cluster_and_a_default_does_not() -> None:
    """Each process derives a default from the device of the targets, which travels."""
    assert "spec_tokens" not in ServiceConfig.of().deployable()
    assert ServiceConfig.of(spec_tokens=15).deployable()["spec_tokens"] == 15
    on_gpu = ServiceConfig.of(target_num_gpus=1)
    assert ServiceConfig.of(**on_gpu.deployable()).max_draft_tokens == 8


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"max_group_size": 4}, {"max_num_seqs": 4}),
        ({"max_group_size": 4, "max_num_seqs": 10}, {"max_num_seqs": 4, "window": 10}),
    ],
)
def test_the_old_names_of_batch_and_window_are_taken_with_a_warning(
    old: dict[str, int],
    new: dict[str, int],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    named = ServiceConfig.of(**new)
    assert ServiceConfig.of(**old) == named
    assert "max_group_size is now called max_num_seqs" in caplog.text
    for name, value in old.items():
        monkeypatch.setenv(f"SPECDEC_{name.upper()}", str(value))
    assert ServiceConfig.of().scheduler_config() == named.scheduler_config()


def test_speculation_is_by_goodput_unless_said_otherwise() -> None:
    assert SpeculationConfig().k_policy is KPolicyName.GOODPUT
    assert ServiceConfig.of().scheduler_config().speculation.k_policy is KPolicyName.GOODPUT


@pytest.mark.parametrize(
    "asked",
    [
        {"draft_replicas": 1},
        {"min_draft_replicas": 0, "max_draft_replicas": 2},
        {"spec_method": "hybrid"},
        {"spec_method": "draft_model"},
        {"spec_model": "smollm2-135m-draft"},
    ],
)
def test_the_demo_draft_runs_only_where_it_is_asked_for(asked: dict[str, Any]) -> None:
    """On CPUs it takes a core from its target and was measured not to earn it back."""
    plain = ServiceConfig.of()
    assert (plain.method, plain.draft, plain.num_draft_replicas) == ("ngram", None, 0)
    assert "--draft-replicas 1" in ready_line(plain, Numerics.EXACT, ChosenFormats())
    config = ServiceConfig.of(**asked)
    assert config.method in DRAFT_MODEL_METHODS
    assert config.draft == "smollm2-135m-draft"
    assert config.num_draft_replicas > 0
    assert "--draft-replicas" not in ready_line(config, Numerics.EXACT, ChosenFormats())
    assert ServiceConfig.of(**config.deployable()).draft == config.draft


def test_no_draft_replicas_means_no_draft() -> None:
    assert ServiceConfig.of(draft_replicas=0).draft is None


def test_neutral_values_of_foreign_settings_are_accepted() -> None:
    assert ServiceConfig.of(tensor_parallel_size=1, quantization=None) == ServiceConfig.of()


def test_flags_win_over_environment_over_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "service.yaml"
    file.write_text("port: 1111\ngrpc_port: 1111\nmax_queued: 1111\n")
    monkeypatch.setenv("SPECDEC_GRPC_PORT", "2222")
    monkeypatch.setenv("SPECDEC_PORT", "2222")
    config = load_service_config(file, {"port": 3333})
    assert (config.port, config.grpc_port, config.scheduler.max_queued) == (3333, 2222, 1111)


def test_a_speculative_config_says_the_same_as_the_flags() -> None:
    spec = {"method": "draft_model", "model": "d", "num_speculative_tokens": 3}
    config = ServiceConfig.of(speculative_config=spec)
    assert config == ServiceConfig.of(spec_method="draft_model", spec_model="d", spec_tokens=3)
    assert config.scheduler_config().speculation.num_draft_tokens == 3


def test_a_schedule_by_batch_size_is_written_as_in_vllm() -> None:
    spec = {"method": "ngram", "num_speculative_tokens_per_batch_size": [[1, 4, 4], [5, 32, 1]]}
    speculation = ServiceConfig.of(speculative_config=spec).scheduler_config().speculation
    assert speculation.k_policy is KPolicyName.SCHEDULE
    assert speculation.k_schedule == ((1, 4, 4), (5, 32, 1))
    with pytest.raises(ValueError, match="require each other"):
        ServiceConfig.of(spec_policy="schedule")
    assert ServiceConfig.of(spec_policy="goodput").scheduler_config().speculation.k_schedule == ()


def test_overlap_reaches_the_pool() -> None:
    assert ServiceConfig.of(overlap="always").scheduler_config().overlap is OverlapMode.ALWAYS
    assert ServiceConfig.of().scheduler_config().overlap is OverlapMode.AUTO


@pytest.mark.parametrize(
    ("settings", "limit"),
    [({}, 256), ({"target_num_gpus": 0.5}, 8192), ({"max_prefill_tokens": 1024}, 1024)],
)
def test_the_limit_of_prompt_tokens_goes_by_the_targets_device(
    settings: dict[str, Any], limit: int
) -> None:
    assert ServiceConfig.of(**settings).scheduler_config().max_prefill_tokens == limit


def test_the_method_follows_from_the_draft_model() -> None:
    assert ServiceConfig.of(model="m").method is SpecMethod.NGRAM
    assert ServiceConfig.of(spec_model="d").method is SpecMethod.DRAFT_MODEL
    assert ServiceConfig.of(model="m").num_draft_replicas == 0


def test_the_coordinator_audits_the_share_that_was_asked_for() -> None:
    assert coordinator_spec(ServiceConfig.of()).audit_share == 0.01
    assert coordinator_spec(ServiceConfig.of(audit_share=0)).audit_share == 0


def test_keys_come_from_one_variable_and_travel_as_digests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPECDEC_API_KEYS", "one, two")
    config = ServiceConfig.of()
    assert [*config.keys.named] == [key_digest("one"), key_digest("two")]
    text = str(serve_config(config))
    assert "one" not in text.replace("None", "")
    assert key_digest("two") in text
    monkeypatch.delenv("SPECDEC_API_KEYS")
    arrived = ServiceConfig.of(**config.deployable())
    assert arrived.keys.named == config.keys.named
    assert arrived.version() == config.version()
    assert [*ServiceConfig.of(api_key="one").keys.named] == [key_digest("one")]


def test_the_served_text_is_complete_and_known_to_serve() -> None:
    from ray.serve.schema import ServeDeploySchema

    config = ServiceConfig.of(spec_model="d", port=8001)
    text = serve_config(config)
    schema = ServeDeploySchema.model_validate(text)
    assert set(text) <= set(ServeDeploySchema.model_fields)
    assert schema.http_options.host == "127.0.0.1"
    assert schema.grpc_options.grpc_servicer_functions == [SERVICER_FUNCTION]
    args = ServiceConfig.of(**text["applications"][0]["args"])
    assert args.deployable() == config.deployable()


def test_serve_gives_the_builder_its_arguments_as_settings() -> None:
    from ray.serve._private.api import call_user_app_builder_with_args_if_necessary as build

    application: Any = build(build_app, {"model": "x", "port": 8001})
    assert application._bound_deployment.init_args[0] == ServiceConfig.of(model="x", port=8001)


def test_the_builder_makes_ingress_target_and_draft() -> None:
    names = {node.name for node in _deployments(build_app({"spec_model": "d"}))}
    assert names == {"ingress", "target", "draft"}
    plain = ServiceConfig.of(spec_method="ngram")
    assert {node.name for node in _deployments(build_app(plain.deployable()))} == {
        "ingress",
        "target",
    }


@pytest.mark.parametrize(("said", "used"), [({}, "10000"), ({"GOMP_SPINCOUNT": "300"}, "300")])
def test_how_long_threads_spin_is_short_unless_the_environment_says_otherwise(
    said: dict[str, str], used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    _, target = _deployments(build_app({"spec_method": "ngram"}))
    told = target.ray_actor_options["runtime_env"]["env_vars"]
    assert told["GOMP_SPINCOUNT"] == used


def test_replicas_and_coordinators_allocate_by_python_whatever_the_node_does() -> None:
    ingress, target, draft = _deployments(build_app({"model": "m", "spec_model": "d"}))
    for replica in (target, draft):
        assert replica.ray_actor_options["runtime_env"]["env_vars"]["PYTHONMALLOC"] == "pymalloc"
    assert "runtime_env" not in ingress.ray_actor_options  # the node's
    assert process_settings()["PYTHONMALLOC"] == "pymalloc"


def test_every_cell_has_a_coordinator_and_replicas_of_its_own() -> None:
    config = ServiceConfig.of(
        model="m", spec_model="d", cells=2, target_replicas=3, draft_replicas=2
    )
    application: Any = build_app(config.deployable())
    nodes = _deployments(application)
    replicas = {node.name: node for node in nodes if node.name != "ingress"}
    assert {name: node._deployment_config.num_replicas for name, node in replicas.items()} == {
        "target": 3,
        "draft": 2,
        "target-cell-1": 3,
        "draft-cell-1": 2,
    }
    cells = {name: node.init_args[1].cell for name, node in replicas.items()}
    assert cells == {"target": 0, "draft": 0, "target-cell-1": 1, "draft-cell-1": 1}
    known = application._bound_deployment.init_args[1]
    assert [spec.cell for spec in known] == [0, 1]
    assert len({spec.actor_name for spec in known}) == 2


def test_cells_multiply_what_a_cell_needs() -> None:
    one = ServiceConfig.of(
        model="m", spec_model="d", target_replicas=2, max_ingress_replicas=4, max_num_seqs=10
    )
    three = one.replaced(cells=3)
    assert (num_cpus_needed(one), num_cpus_needed(three)) == (4, 10)
    assert [config.threads_per_replica(19) for config in (one, three)] == [6, 2]


@pytest.mark.parametrize(
    ("keys", "num_waiting"), [("", 5000), ("one", 5000), ("one,two,three", 5000 + 2500 + 1667)]
)
def test_one_ingress_holds_all_that_the_pool_takes_and_answers_on(
    keys: str, num_waiting: int
) -> None:
    """Beside a key that fills the queue each of the others has its share of it."""
    config = ServiceConfig.of(max_queued=5000, max_num_seqs=100, target_replicas=3, api_keys=keys)
    for cells in (1, 2):
        application: Any = build_app(config.replaced(cells=cells).deployable())
        limit = application._bound_deployment._deployment_config.max_ongoing_requests
        assert limit >= cells * (num_waiting + 600) + 100


def _deployments(application: Any) -> list[Any]:
    bound = application._bound_deployment
    inner = [arg for arg in bound.init_args if hasattr(arg, "_bound_deployment")]
    return [bound, *(node for arg in inner for node in _deployments(arg))]


@pytest.mark.parametrize(
    ("replicas", "cores", "threads"),
    [(1, 1, 1), (1, 2, 2), (1, 3, 2), (1, 9, 8), (2, 9, 4), (3, 2, 1)],
)
def test_threads_are_shared_among_replicas(replicas: int, cores: int, threads: int) -> None:
    config = ServiceConfig.of(target_replicas=replicas, spec_method="ngram")
    assert config.threads_per_replica(cores) == threads


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cors_origins": ["chat.example.com"]}, "write scheme://host"),
        ({"cors_origins": "https://chat.example.com/"}, "without a path"),
        ({"cors_origins": "https://a.example,https://B.example"}, "lower case"),
        ({"cors_origins": "https://*.example.com"}, "'\\*' alone"),
        ({"cors_origins": "http://localhost:*"}, "'\\*' alone"),
        ({"allowed_hosts": "*.example.com"}, "'\\*' alone"),
        ({"allowed_hosts": "http://llm.example"}, "without scheme and port"),
        ({"allowed_hosts": ["llm.example:8000"]}, "without scheme and port"),
        ({"stream_keep_alive_s": 0}, "greater than 0"),
    ],
)
def test_mistakes_in_the_settings_of_http_are_refused(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        ServiceConfig.of(**settings)


def test_origins_and_hosts_are_lists_or_separated_by_commas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPECDEC_CORS_ORIGINS", "https://a.example, http://localhost:3000")
    config = ServiceConfig.of(allowed_hosts=["LLM.example.", "*"])
    assert config.web.cors_origins == ("https://a.example", "http://localhost:3000")
    assert config.web.allowed_hosts == ("llm.example", "*")
    arrived = ServiceConfig.of(**config.deployable())
    assert arrived.web.cors_origins == config.web.cors_origins
    assert arrived.web.allowed_hosts == config.web.allowed_hosts


def test_the_metrics_key_travels_as_a_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    config = ServiceConfig.of(metrics_api_key="watch")
    assert config.web.metrics_key_digest == key_digest("watch")
    assert "watch" not in str(config.deployable())
    arrived = ServiceConfig.of(**config.deployable())
    assert arrived.web.metrics_key_digest == config.web.metrics_key_digest
    assert ServiceConfig.of().web.metrics_key_digest == ""
    monkeypatch.setenv("SPECDEC_METRICS_API_KEY", "other")
    assert ServiceConfig.of().web.metrics_key_digest == key_digest("other")


@pytest.mark.parametrize("key", ["", " ", "\n"])
def test_an_empty_metrics_key_is_none(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller without a key would have it."""
    assert ServiceConfig.of(metrics_api_key=key).web.metrics_key_digest == ""
    monkeypatch.setenv("SPECDEC_METRICS_API_KEY", key)
    assert ServiceConfig.of().web.metrics_key_digest == ""


def test_a_metrics_key_is_read_as_it_is_shown() -> None:
    config = ServiceConfig.of(metrics_api_key=" watch\n")
    assert config.web.metrics_key_digest == key_digest("watch")


def test_a_loading_flag_with_the_name_of_a_load_setting_reaches_the_model() -> None:
    values = {
        "dtype": DType.FLOAT32,
        "device": "cpu",
        "revision": "r1",
        "max_model_len": 77,
        "kv_cache_tokens": 640,
        "numerics": Numerics.FAST,
        "enable_prefix_caching": False,
        "enforce_eager": True,
        "gpu_memory_utilization": 0.5,
    }
    shared = {field.name for field in fields(LoadOptions)} & {f.name for f in fields(LoadConfig)}
    assert set(values) == shared, "add an example of the new flag"
    loaded = LoadOptions(**values).load_config()  # type: ignore[arg-type]
    assert {name: getattr(loaded, name) for name in values} == values
    assert LoadOptions(gpu_memory_utilization=None).load_config() == LoadOptions().load_config()
