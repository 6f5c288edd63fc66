"""Renders a request's own chat template in a separate process with limits on time, memory and size.

The sandbox keeps a template from reaching Python objects. It does not keep a template from looping,
or from multiplying a string until the memory is full.
"""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from deployments.runtime.python_path import python_path
from deployments.text.chat_messages import MAX_TEMPLATE_SECONDS, TemplateInput
from deployments.text.chat_rendering import own_template, render
from specdec_core.errors import InvalidRequestError

_MEMORY_BYTES = 512 * 2**20
_EXTRA_WALL_S = 8.0
"""Time beyond that limit: the machine may be busy, and python and jinja2 take 0.1 s to begin."""


def render_apart(
    source: str,
    given: TemplateInput,
    max_chars: int,
    max_seconds: float = MAX_TEMPLATE_SECONDS,
) -> str:
    """Return the rendered text. Raises InvalidRequestError if it is refused or exceeds a limit."""
    # Nothing of this process's environment: it may hold API keys.
    environment = {"PYTHONPATH": python_path()}
    work = {
        "source": source,
        "given": asdict(given),
        "max_chars": max_chars,
        "max_seconds": max_seconds,
    }
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__],
            input=json.dumps(work),
            capture_output=True,
            text=True,
            env=environment,
            timeout=max_seconds + _EXTRA_WALL_S,
        )
        answer = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError):  # ended by a limit: nothing was written
        raise InvalidRequestError(
            f"chat_template: rendering takes more than max_template_seconds={max_seconds:g} of "
            f"CPU time or {_MEMORY_BYTES >> 20} MB of memory",
            param="chat_template",
        ) from None
    if answer["refusal"]:
        raise InvalidRequestError(answer["refusal"], param=answer["param"])
    rendered: str = answer["text"]
    return rendered


def _limit_oneself(max_seconds: float) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    signal.setitimer(signal.ITIMER_PROF, max_seconds)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def _answer(work: Mapping[str, Any]) -> dict[str, str]:
    try:
        text = render(own_template(work["source"]), TemplateInput(**work["given"]))
    except InvalidRequestError as error:
        return {"refusal": str(error), "param": error.param or "chat_template"}
    except Exception as error:  # a template may fail in any way while it is compiled
        return {"refusal": f"the chat template refuses: {error}", "param": "chat_template"}
    if len(text) > work["max_chars"]:
        refusal = f"the chat template renders more than {work['max_chars']} characters"
        return {"refusal": refusal, "param": "chat_template"}
    return {"refusal": "", "text": text}


if __name__ == "__main__":
    request = json.load(sys.stdin)
    _limit_oneself(request["max_seconds"])
    print(json.dumps(_answer(request)))
