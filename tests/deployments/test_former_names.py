"""Manifests of the last release name modules that have other names now."""

from __future__ import annotations

from importlib import import_module

import pytest

FORMER = {
    "deployments.edge.proxy_hook:guard": "deployments.proxy.hooks:guard",
    "deployments.edge.grpc_services:add_services": "deployments.proxy.grpc_services:add_services",
    "deployments.autoscaling.serve_policy:PoolPolicy": "deployments.autoscaling.policy:PoolPolicy",
}


@pytest.mark.parametrize(("former", "new"), FORMER.items())
def test_a_former_name_leads_to_the_same_object(former: str, new: str) -> None:
    old_module, name = former.split(":")
    new_module, _ = new.split(":")
    assert getattr(import_module(old_module), name) is getattr(import_module(new_module), name)
