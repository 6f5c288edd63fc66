"""Compare chat templates rendered here with the same templates rendered by transformers.

    python -m benchmarks.chat_templates FOLDER

FOLDER holds `*.jinja` files, such as llama.cpp's models/templates. Every template renders every
conversation below. The exit status is 1 if a text differs, or if something is lost. Next to each
template stand the formats in which its model's answers are read.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from deployments.text.answers.choosing import choose
from deployments.text.chat_messages import TemplateInput, checked_messages
from deployments.text.chat_rendering import (
    ChatTemplate,
    compile_template,
    forms,
    known_roles,
    render,
)
from specdec_core.errors import InvalidRequestError, ModelNotSupportedError

SPECIAL_TOKENS = {
    "bos_token": "<bos>",
    "eos_token": "<eos>",
    "pad_token": "<pad>",
    "unk_token": "<unk>",
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"Tell the {name} of a city.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Name of the city."},
                    "days": {"type": "integer"},
                },
                "required": ["city"],
            },
        },
    }
    for name in ("weather", "population")
]
SYSTEM = {"role": "system", "content": "Be brief, Größe 日本."}
USER = {"role": "user", "content": " How warm is it in Rome?\n"}
ANSWER = {"role": "assistant", "content": "Warm: 'about' \"20\" °C <b>."}
THANKS = {"role": "user", "content": "Thank you."}
REASONED = ANSWER | {"reasoning_content": "They mean the capital."}


def _call(city: str, number: int = 1, name: str = "weather") -> dict[str, Any]:
    arguments = json.dumps({"city": city, "days": 3})
    return {
        "id": f"call{number:05}",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


CALL: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [_call("Rome")]}
RESULT = {"role": "tool", "tool_call_id": "call00001", "content": '{"celsius": 20}'}
LONG_ID = "call_0123456789abcdef01234567"
LONG_IDS = [
    CALL | {"tool_calls": [_call("Rome") | {"id": LONG_ID}]},
    RESULT | {"tool_call_id": LONG_ID},
]
CALLS = CALL | {"tool_calls": [_call("Rome"), _call("Oslo", 2, "population")]}
RESULTS = [RESULT, RESULT | {"tool_call_id": "call00002", "content": "700000 people"}]


@dataclass(frozen=True)
class Case:
    """One conversation and how it is rendered."""

    name: str
    messages: Sequence[dict[str, Any]]
    tools: Sequence[dict[str, Any]] = ()
    variables: dict[str, Any] = field(default_factory=dict)
    continues: bool = False

    def given(self) -> TemplateInput:
        return TemplateInput(
            messages=checked_messages(list(self.messages)),
            tools=self.tools,
            variables=SPECIAL_TOKENS | self.variables,
            add_generation_prompt=not self.continues,
            continues_final_message=self.continues,
        )


CASES = (
    Case("user", [USER]),
    Case("system", [SYSTEM, USER]),
    Case("developer", [SYSTEM | {"role": "developer"}, USER]),
    Case("turns", [USER, ANSWER, THANKS]),
    Case("prefill", [USER, {"role": "assistant", "content": "<"}], continues=True),
    Case("reasoning", [SYSTEM, USER, REASONED, THANKS]),
    Case("effort", [USER], variables={"reasoning_effort": "high"}),
    Case("no thinking", [USER], variables={"enable_thinking": False}),
    Case("tools", [USER], TOOLS),
    Case("system and tools", [SYSTEM, USER, ANSWER, THANKS], TOOLS),
    Case("call", [USER, CALL, RESULT], TOOLS),
    Case("call without tools", [USER, CALL, RESULT, ANSWER, THANKS]),
    Case("long IDs", [USER, *LONG_IDS], TOOLS),
    Case("calls", [SYSTEM, USER, CALLS, *RESULTS, ANSWER, THANKS], TOOLS),
    Case("text and call", [USER, CALL | {"content": "Let me look."}, RESULT], TOOLS),
    Case("reasoned call", [USER, CALL | {"reasoning": "Rome, Italy."}, RESULT], TOOLS),
    Case(
        "text and reasoned call",
        [USER, CALL | {"content": "Let me look.", "reasoning": "Rome, Italy."}, RESULT],
        TOOLS,
    ),
)


def theirs(source: str, given: TemplateInput) -> str:
    """Return transformers' rendering."""
    from transformers.utils.chat_template_utils import render_jinja_template

    (text,), _ = render_jinja_template(
        conversations=[[dict(message) for message in given.messages]],
        tools=list(given.tools) or None,
        chat_template=source,
        add_generation_prompt=given.add_generation_prompt,
        continue_final_message=given.continues_final_message,
        **given.variables,
    )
    return str(text)


def verdict(template: ChatTemplate, given: TemplateInput) -> str:
    """Return how the two renderings compare."""
    given = replace(given, messages=known_roles(template, given.messages))
    try:
        expected = theirs(template.source, given)
    except Exception as error:  # a template may fail in any way
        expected = None
        reason = str(error)
    try:
        text = render(template, given)
    except InvalidRequestError as error:
        return f"refused in both: {reason:.90}" if expected is None else f"refused here: {error}"
    if text == expected:
        return "equal"
    for messages in forms(list(given.messages)):
        try:
            if theirs(template.source, replace(given, messages=messages)) == text:
                return "equal in another form"
        except Exception:  # the next form may be the one
            continue
    return "DIFFERENT"


def verdicts(source: str) -> dict[str, str]:
    """Return the verdict of each conversation under one template."""
    try:
        template = compile_template(source)
    except ModelNotSupportedError as error:
        return {"compilation": f"DIFFERENT: {error}"}
    return {case.name: verdict(template, case.given()) for case in CASES}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="folder with *.jinja files")
    files = sorted(parser.parse_args(arguments).folder.glob("*.jinja"))
    totals: Counter[str] = Counter()
    for file in files:
        source = file.read_text(encoding="utf-8")
        found = verdicts(source)
        counts = Counter(told.partition(":")[0] for told in found.values())
        totals += counts
        print(f"{file.stem}: {', '.join(f'{n} {told}' for told, n in counts.items())}")
        print(f"    {choose(source)}")
        for name, told in found.items():
            if told != "equal":
                print(f"    {name}: {told}")
    print(f"{len(files)} templates: {dict(totals)}")
    return int(not files or bool(totals["DIFFERENT"]))


if __name__ == "__main__":
    sys.exit(main())
