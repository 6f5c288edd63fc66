"""Runs inside the cluster: streams questions again and again and prints what came of each.

Standard library alone, as it is copied into a pod. One JSON object a line on standard output; it
ends when standard input is closed and every stream has ended.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from typing import Any

RESUMES = 60
"""Times that one answer is taken up again before it is given up."""
PAUSE_S = 0.25
LONGEST_REST_S = 10.0
"""A client rests as long as its answer took, so much at most: the machine that answers may be the
one that runs the whole cluster."""


@dataclass
class Outcome:
    """One request."""

    question: int
    began: float
    ended: float = 0.0
    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    first_s: float | None = None
    """To the first token."""
    gap_s: float = 0.0
    """Longest time between two chunks, the wait for the first one left out."""
    gap_at: float = 0.0
    last_at: float = 0.0
    """Of the last chunk."""
    num_resumes: int = 0
    error: str | None = None

    @property
    def rest_s(self) -> float:
        """Of its client, behind it."""
        return PAUSE_S if self.error else min(self.ended - self.began, LONGEST_REST_S)

    def take(self, choice: dict[str, Any], now: float) -> None:
        """A chunk's part of the answer."""
        self.text += choice.get("text") or ""
        if not choice.get("token_ids"):
            return
        if self.first_s is None:
            self.first_s = now - self.began
        elif now - self.last_at > self.gap_s:
            self.gap_s, self.gap_at = now - self.last_at, now
        self.last_at = now
        self.token_ids += choice["token_ids"]


class Client:
    """Asks one question after the other."""

    def __init__(self, options: argparse.Namespace, questions: list[dict[str, Any]]) -> None:
        self._options = options
        self._questions = questions
        self._print = threading.Lock()
        self.is_over = threading.Event()

    def work(self, first: int) -> None:
        step = self._options.workers
        for number in itertools.count(first, step):
            if self.is_over.is_set():
                return
            outcome = self.ask(number % len(self._questions))
            with self._print:
                print(json.dumps(asdict(outcome)), flush=True)
            self.is_over.wait(outcome.rest_s)

    def ask(self, number: int) -> Outcome:
        outcome = Outcome(question=number, began=time.time())
        while True:
            outcome.error = self._stream(outcome)
            may_resume = self._options.resume and outcome.num_resumes < RESUMES
            if outcome.error is None or not may_resume or outcome.error.startswith("HTTP 4"):
                break
            outcome.num_resumes += 1
            time.sleep(PAUSE_S)
        outcome.ended = time.time()
        return outcome

    def _stream(self, outcome: Outcome) -> str | None:
        """Go on with the answer; what went wrong, or None at its end."""
        body = dict(self._questions[outcome.question], stream=True, return_token_ids=True)
        if outcome.token_ids:
            body["resume"] = {"token_ids": outcome.token_ids, "seed": body.get("seed")}
        host, _, port = self._options.address.partition(":")
        connection = http.client.HTTPConnection(host, int(port or 8000), timeout=120)
        headers = {"Content-Type": "application/json"}
        if self._options.key:
            headers["Authorization"] = f"Bearer {self._options.key}"
        try:
            connection.connect()
        except OSError as error:
            return f"refused: {error}"
        try:
            connection.request("POST", "/v1/completions", json.dumps(body), headers)
            answer = connection.getresponse()
            if answer.status != 200:
                return f"HTTP {answer.status}: {answer.read(300).decode(errors='replace')}"
            return self._read(answer, outcome)
        except (OSError, http.client.HTTPException) as error:
            return f"cut: {type(error).__name__}: {error}"
        finally:
            connection.close()

    def _read(self, answer: http.client.HTTPResponse, outcome: Outcome) -> str | None:
        for line in answer:
            data = line.removeprefix(b"data:").strip()
            if not line.startswith(b"data:"):
                continue
            if data == b"[DONE]":
                return None
            chunk = json.loads(data)
            if chunk.get("error"):
                return f"error: {json.dumps(chunk['error'])[:300]}"
            for choice in chunk.get("choices", ()):
                outcome.take(choice, time.time())
        return "cut: the stream ended without [DONE]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", required=True, help="HOST:PORT of the service")
    parser.add_argument("--questions", required=True, help="JSON lines: bodies of /v1/completions")
    parser.add_argument("--workers", type=int, default=4, help="streams at a time")
    parser.add_argument("--resume", action="store_true", help="take up answers that were cut")
    parser.add_argument("--key", default="", help="API key")
    options = parser.parse_args()
    with open(options.questions) as file:
        questions = [json.loads(line) for line in file]
    client = Client(options, questions)
    workers = [threading.Thread(target=client.work, args=(n,)) for n in range(options.workers)]
    for worker in workers:
        worker.start()
    sys.stdin.read()
    client.is_over.set()
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    main()
