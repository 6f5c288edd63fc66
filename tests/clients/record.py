"""Run unpatched clients against a recording server and store what they send.

`python -m tests.clients.record [CLIENT ...]` rewrites tests/clients/CLIENT/requests.json, and
loop_requests.json for the clients that run tools in a loop with a model that reasons.
"""

from __future__ import annotations

import sys

from tests.clients.environments import FOLDER, run_client
from tests.clients.server import scripted_server

RECORDED = ("ai_sdk", "instructor", "langchain", "litellm", "openai_node", "pydantic_ai")
"""Clients with a script whose requests are replayed by `make test`."""
LOOPED = ("ai_sdk", "langchain", "litellm", "openai_node", "pydantic_ai")
"""Clients with a script that runs tools in a loop."""
LOOP_FORMAT = "hermes"
"""Format of the model that the loops were recorded with."""


def main() -> None:
    for name in sys.argv[1:] or RECORDED:
        with scripted_server(recording=FOLDER / name / "requests.json") as url:
            print(name, run_client(name, url), sep="\n")
        if name in LOOPED:
            recording = FOLDER / name / "loop_requests.json"
            with scripted_server(recording=recording, format=LOOP_FORMAT) as url:
                print(name, run_client(name, url, script="loop"), sep="\n")


if __name__ == "__main__":
    main()
