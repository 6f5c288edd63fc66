"""The services that are put under load: their settings, and asking them plainly."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.overload.http_exchange import completion, exchange, post
from benchmarks.overload.questions import Ids, Server
from deployments.config.flags import flag
from deployments.config.service import ServiceConfig
from specdec_core.config import Numerics, SpecMethod


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """The flags of the service that is put under load."""

    model: str = flag("smollm2-135m", "Demo model or folder.")
    port: int = flag(8123, "HTTP; gRPC listens 1000 higher.")
    threads: int = flag(1, "Torch threads of the target.")
    ingresses: int = flag(1, "Ingress replicas.")
    max_queued: int = flag(1024, "Requests that may wait; more are refused.")
    max_group_size: int = 16
    """More than the streams that are measured: a group more would halve their speed, whoever the
    ninth of eight is."""
    max_num_seqs: int = 32


def service_config(options: ServiceOptions) -> ServiceConfig:
    """In exact numerics; no process comes or goes by itself, so that memory can be compared."""
    return ServiceConfig.of(
        model=options.model,
        served_model_name="served",
        spec_method=SpecMethod.NGRAM,
        numerics=Numerics.EXACT,
        max_num_seqs=options.max_group_size,
        window=options.max_num_seqs,
        max_queued=options.max_queued,
        torch_threads=options.threads,
        ingress_replicas=options.ingresses,
        max_ingress_replicas=options.ingresses,
        audit_share=0.0,
        port=options.port,
        grpc_port=options.port + 1000,
    )


def server_of(config: ServiceConfig) -> Server:
    return Server(port=config.port, grpc_port=config.grpc_port, model=config.model_name)


def ask_plainly(server: Server, given: Sequence[Ids], max_tokens: int) -> Mapping[Ids, Ids]:
    """Every prompt's ids of plain decoding: one by one, without speculation."""
    return asyncio.run(_ask_plainly(server, given, max_tokens))


async def _ask_plainly(server: Server, given: Sequence[Ids], max_tokens: int) -> Mapping[Ids, Ids]:
    return {prompt: await _plain(server, prompt, max_tokens) for prompt in given}


async def _plain(server: Server, prompt: Ids, max_tokens: int) -> Ids:
    body = completion(server, prompt, max_tokens)
    body |= {"return_token_ids": True, "speculative": {"enabled": False}}
    answer = await exchange(server, post(server, "/v1/completions", body))
    assert answer.status == 200, answer.body
    return tuple(json.loads(answer.body)["choices"][0]["token_ids"])
