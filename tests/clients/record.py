"""Run unpatched clients against a recording server and store what they send.

`python -m tests.clients.record [CLIENT ...]` rewrites tests/clients/CLIENT/requests.json.
"""

from __future__ import annotations

import sys

from tests.clients.environments import FOLDER, run_client
from tests.clients.server import scripted_server

RECORDED = ("ai_sdk", "instructor", "langchain", "litellm", "openai_node", "pydantic_ai")
"""Clients with a script whose requests are replayed by `make test`."""


def main() -> None:
    for name in sys.argv[1:] or RECORDED:
        with scripted_server(recording=FOLDER / name / "requests.json") as url:
            print(name, run_client(name, url), sep="\n")


if __name__ == "__main__":
    main()
