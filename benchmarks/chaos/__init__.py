"""Chaos on the real thing: every kind of process is killed and stopped under load, and every byte
that clients receive is compared with an undisturbed run."""
