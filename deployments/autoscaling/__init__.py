"""Autoscaling: from the schedulers' signals to one decision for all deployments."""
