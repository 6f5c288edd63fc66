"""Runs leases on one device: the replica, its rounds, the model runner and CUDA graphs."""
