"""Imported by Python at its start in the processes of a service under measurement."""

from benchmarks.host_time.served.swapping import begin

begin()
