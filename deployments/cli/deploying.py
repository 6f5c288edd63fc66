"""Apply a serveConfigV2 text to the running Serve."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from ray import serve
from ray.serve.context import _get_global_client
from ray.serve.schema import ServeDeploySchema


def deploy(text: dict[str, Any]) -> None:
    """Start Serve with the text's options and deploy its application; does not wait for it."""
    serve.start(
        proxy_location=text["proxy_location"],
        http_options=text["http_options"],
        grpc_options=text["grpc_options"],
        logging_config=text.get("logging_config"),
    )
    (application,) = text["applications"]
    if "autoscaling_policy" in application:
        _hand_over(text)
    else:
        _run(application)


def _run(application: dict[str, Any]) -> None:
    """Deploy with the builder that the text names, in this process. This is seconds faster than in
    a process of Serve."""
    module, _, name = application["import_path"].partition(":")
    builder: Callable[[dict[str, Any]], Any] = getattr(importlib.import_module(module), name)
    target = serve.RunTarget(
        target=builder(application["args"]),
        name=application["name"],
        route_prefix=application["route_prefix"],
        logging_config=application.get("logging_config"),
    )
    serve.run_many([target], wait_for_applications_running=False)


def _hand_over(text: dict[str, Any]) -> None:
    """Deploy as `serve run` does with a file, because run_many takes no policy of an
    application."""
    client: Any = _get_global_client()
    client.deploy_apps(ServeDeploySchema.model_validate(text))
