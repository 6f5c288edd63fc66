"""Formats that the scripted model can speak: the words of a chat template, and special tokens.

The words are those of published templates. `dialect.jinja` puts them together.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

_SKELETON = Path(__file__).with_name("dialect.jinja")
_CALL_LINES = {
    "parameter": "{% for key, value in arguments | items %}{{ '<parameter=' + key + '>\\n' }}"
    "{{ value if value is string else value | tojson }}{{ '\\n</parameter>\\n' }}{% endfor %}",
    "named": "{% for key, value in arguments | items %}{{ '<parameter name=\"' + key + '\">' }}"
    "{{ value if value is string else value | tojson }}{{ '</parameter>\\n' }}{% endfor %}",
    "close": "{% for key, value in arguments | items %}{{ '<parameter=' + key + '>' }}"
    "{{ value if value is string else value | tojson }}{{ '</parameter>\\n' }}{% endfor %}",
    "typed": "{% for key, value in arguments | items %}"
    "{{ '<｜DSML｜parameter name=\"' + key + '\" string=\"' }}"
    "{{ 'true\">' + value if value is string else 'false\">' + (value | tojson) }}"
    "{{ '</｜DSML｜parameter>\\n' }}{% endfor %}",
    "close_arg_key": "{% for key, value in arguments | items %}"
    "{{ '<arg_key>' + key + '</arg_key><arg_value>' }}"
    "{{ value if value is string else value | tojson }}{{ '</arg_value>' }}{% endfor %}",
    "arg_key": "{% for key, value in arguments | items %}"
    "{{ '<arg_key>' + key + '</arg_key>\\n<arg_value>' }}"
    "{{ value if value is string else value | tojson }}{{ '</arg_value>\\n' }}{% endfor %}",
    "quoted": "{% for key, value in arguments | items %}{{ ',' if not loop.first }}"
    "{{ key + ':' }}{% if value is string %}{{ '<|\"|>' + value + '<|\"|>' }}"
    "{% else %}{{ value | tojson }}{% endif %}{% endfor %}",
    "json": "{{ arguments | tojson }}",
}
"""Jinja for the arguments of a call."""

Around = tuple[str, str]
"""Texts before and after another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One format as the scripted model speaks it."""

    calls: str
    """Value of `--tool-call-parser`."""
    reasoning: str
    """Value of `--reasoning-parser`."""
    user: Around
    tool: Around
    system: Around | None = None
    """None: as the user's turns."""
    answer: Around
    thought: Around = ("<think>\n", "\n</think>\n\n")
    opens_thought: bool = False
    """The prompt ends with the beginning of the thought."""
    reopens_thought: bool = False
    """So does a prompt that ends with a tool's result, if the result begins the answer."""
    preamble: Around = ("", "")
    """Around text that calls follow."""
    final: Around = ("", "")
    """Around text that no calls follow."""
    call: Around
    """Around the arguments. `{name}` and `{index}` are the call's."""
    arguments: str = "json"
    calls_before: str = ""
    calls_between: str = ""
    calls_after: str = ""
    calls_end: str | None = None
    """End of an answer with calls; None: as of others."""
    tool_begins_answer: bool = False
    """The answer continues after a tool's result without the mark of an answer."""
    has_many_calls: bool = True
    """One answer may have several calls."""
    has_preamble: bool = True
    """Text may come before calls."""
    ends: tuple[str, ...]
    """Tokens that end an answer."""
    special: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    """Tokens that are not special."""

    @property
    def template(self) -> str:
        """Source of the chat template."""
        words: Mapping[str, object] = {
            "user": self.user,
            "tool": self.tool,
            "system": self.system or self.user,
            "answer": self.answer,
            "thought": self.thought,
            "opens_thought": self.opens_thought,
            "reopens_thought": self.reopens_thought,
            "preamble": self.preamble,
            "final": self.final,
            "call_words": self.call,
            "calls_before": self.calls_before,
            "calls_between": self.calls_between,
            "calls_after": self.calls_after,
            "calls_end": self.answer[1] if self.calls_end is None else self.calls_end,
            "tool_begins_answer": self.tool_begins_answer,
        }
        lines = [
            f"{{%- set {name} = {json.dumps(value, ensure_ascii=False)} %}}"
            for name, value in words.items()
        ]
        body = _SKELETON.read_text(encoding="utf-8")
        return "\n".join([*lines, body.replace("ARGUMENTS", _CALL_LINES[self.arguments])])

    def answer_start(self, text: str) -> int | None:
        """Return where the answer to the last question or result begins in a rendered text.

        None without such a place: a draft may propose the beginning of a turn.
        """
        asked = max(text.rfind(self.user[0]), text.rfind(self.tool[0]), 0)
        is_tool = text.startswith(self.tool[0], asked)
        turn = self.tool if is_tool else self.user
        mark = "" if is_tool and self.tool_begins_answer else self.answer[0]
        mark = turn[1] + mark
        found = text.find(mark, asked)
        return None if found < 0 else found + len(mark)


def _chatml(**others: object) -> Dialect:
    words: dict[str, object] = {
        "user": ("<|im_start|>user\n", "<|im_end|>\n"),
        "tool": ("<|im_start|>tool\n<tool_response>\n", "\n</tool_response><|im_end|>\n"),
        "system": ("<|im_start|>system\n", "<|im_end|>\n"),
        "answer": ("<|im_start|>assistant\n", "<|im_end|>\n"),
        "ends": ("<|im_end|>",),
        "added": ("<think>", "</think>", "<tool_call>", "</tool_call>"),
    }
    return Dialect(**(words | others))  # type: ignore[arg-type]


_GLM = Dialect(
    calls="glm45",
    reasoning="glm45",
    user=("<|user|>\n", ""),
    tool=("<|observation|>\n<tool_response>\n", "\n</tool_response>"),
    system=("<|system|>\n", ""),
    answer=("<|assistant|>", ""),
    thought=("\n<think>", "</think>\n"),
    call=("<tool_call>{name}\n", "</tool_call>"),
    arguments="arg_key",
    calls_between="\n",
    calls_end="<|observation|>",
    final=("", "<|user|>"),
    ends=("<|user|>", "<|observation|>"),
    special=("<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
    added=(
        *("<think>", "</think>", "<tool_call>", "</tool_call>"),
        *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    ),
)
_DEEPSEEK = Dialect(
    calls="deepseek_v31",
    reasoning="deepseek_v3",
    user=("<｜User｜>", ""),
    tool=("<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"),
    answer=("<｜Assistant｜>", "<｜end▁of▁sentence｜>"),
    thought=("<think>", "</think>"),
    opens_thought=True,
    call=("<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
    calls_before="<｜tool▁calls▁begin｜>",
    calls_after="<｜tool▁calls▁end｜>",
    tool_begins_answer=True,
    ends=("<｜end▁of▁sentence｜>",),
    special=("<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"),
    added=(
        *("<think>", "</think>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
        *("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"),
        *("<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"),
    ),
)
_DEEPSEEK_DSML = replace(
    _DEEPSEEK,
    calls="deepseek_v4",
    tool=("<｜User｜><tool_result>", "</tool_result>"),
    call=('<｜DSML｜invoke name="{name}">\n', "</｜DSML｜invoke>\n"),
    arguments="typed",
    calls_before="\n\n<｜DSML｜tool_calls>\n",
    calls_after="</｜DSML｜tool_calls>",
    tool_begins_answer=False,
    special=("<｜User｜>", "<｜Assistant｜>"),
    added=("<think>", "</think>", "｜DSML｜"),
)

DIALECTS: Mapping[str, Dialect] = {
    "hermes": _chatml(
        calls="hermes",
        reasoning="qwen3",
        call=('<tool_call>\n{"name": "{name}", "arguments": ', "}\n</tool_call>"),
        calls_between="\n",
    ),
    "qwen3_coder": _chatml(
        calls="qwen3_coder",
        reasoning="qwen3",
        opens_thought=True,
        call=("<tool_call>\n<function={name}>\n", "</function>\n</tool_call>"),
        arguments="parameter",
        calls_between="\n",
    ),
    "llama3_json": Dialect(
        calls="llama3_json",
        reasoning="deepseek_r1",
        user=("<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"),
        tool=("<|start_header_id|>ipython<|end_header_id|>\n\n", "<|eot_id|>"),
        answer=("<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"),
        call=('{"name": "{name}", "parameters": ', "}"),
        has_many_calls=False,
        has_preamble=False,
        ends=("<|eot_id|>",),
        special=("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|python_tag|>"),
    ),
    "mistral": Dialect(
        calls="mistral",
        reasoning="mistral",
        user=("[INST]", "[/INST]"),
        tool=("[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
        system=("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
        answer=("", "</s>"),
        thought=("[THINK]", "[/THINK]"),
        call=("[TOOL_CALLS]{name}[ARGS]", ""),
        ends=("</s>",),
        special=(
            *("</s>", "[INST]", "[/INST]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]"),
            *("[ARGS]", "[THINK]", "[/THINK]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
        ),
    ),
    "glm45": _GLM,
    "glm47": replace(
        _GLM,
        calls="glm47",
        user=("<|user|>", ""),
        tool=("<|observation|><tool_response>", "</tool_response>"),
        system=("<|system|>", ""),
        thought=("<think>", "</think>"),
        opens_thought=True,
        call=("<tool_call>{name}", "</tool_call>"),
        arguments="close_arg_key",
        calls_between="",
        final=("", "<|endoftext|>"),
        ends=("<|endoftext|>", "<|observation|>"),
        special=("<|system|>", "<|user|>", "<|assistant|>"),
    ),
    "deepseek_v3": replace(
        _DEEPSEEK,
        calls="deepseek_v3",
        reasoning="deepseek_r1",
        thought=("<think>\n", "\n</think>\n\n"),
        call=(
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n",
            "\n```<｜tool▁call▁end｜>",
        ),
        calls_between="\n",
    ),
    "deepseek_v31": _DEEPSEEK,
    "deepseek_v32": replace(
        _DEEPSEEK_DSML,
        calls="deepseek_v32",
        tool=("\n\n<function_results>\n<result>", "</result>\n</function_results>\n\n"),
        reopens_thought=True,
        calls_before="\n\n<｜DSML｜function_calls>\n",
        calls_after="</｜DSML｜function_calls>",
        tool_begins_answer=True,
    ),
    "deepseek_v4": _DEEPSEEK_DSML,
    "openai": Dialect(
        calls="openai",
        reasoning="openai_gptoss",
        user=("<|start|>user<|message|>", "<|end|>"),
        tool=("<|start|>functions.tool to=assistant<|channel|>commentary<|message|>", "<|end|>"),
        system=("<|start|>developer<|message|>", "<|end|>"),
        answer=("<|start|>assistant", ""),
        thought=("<|channel|>analysis<|message|>", "<|end|><|start|>assistant"),
        preamble=("<|channel|>commentary<|message|>", "<|end|><|start|>assistant"),
        final=("<|channel|>final<|message|>", "<|return|>"),
        call=("<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>", "<|call|>"),
        has_many_calls=False,
        ends=("<|return|>", "<|call|>"),
        special=(
            *("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>"),
            *("<|return|>", "<|call|>"),
        ),
    ),
    "gemma4": Dialect(
        calls="gemma4",
        reasoning="gemma4",
        user=("<|turn>user\n", "<turn|>\n"),
        tool=('<|tool_response>response:tool{value:<|"|>', '<|"|>}<tool_response|>'),
        system=("<|turn>system\n", "<turn|>\n"),
        answer=("<|turn>model\n", "<turn|>\n"),
        thought=("<|channel>thought\n", "\n<channel|>"),
        call=("<|tool_call>call:{name}{", "}<tool_call|>"),
        arguments="quoted",
        calls_end="<|tool_response>",
        tool_begins_answer=True,
        ends=("<turn|>", "<|tool_response>"),
        special=(
            *("<|turn>", "<turn|>", "<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>"),
            *("<|tool_response>", "<tool_response|>", '<|"|>'),
        ),
    ),
    "granite": Dialect(
        calls="granite",
        reasoning="granite",
        user=("<|start_of_role|>user<|end_of_role|>", "<|end_of_text|>\n"),
        tool=("<|start_of_role|>tool<|end_of_role|>", "<|end_of_text|>\n"),
        system=("<|start_of_role|>system<|end_of_role|>", "<|end_of_text|>\n"),
        answer=("<|start_of_role|>assistant<|end_of_role|>", "<|end_of_text|>\n"),
        thought=("<think>", "</think>"),
        call=('{"name": "{name}", "arguments": ', "}"),
        calls_before="<|tool_call|>[",
        calls_between=", ",
        calls_after="]",
        ends=("<|end_of_text|>",),
        special=("<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>", "<|tool_call|>"),
    ),
    "kimi_k2": Dialect(
        calls="kimi_k2",
        reasoning="kimi_k2",
        user=("<|im_user|>user<|im_middle|>", "<|im_end|>"),
        tool=("<|im_system|>tool<|im_middle|>", "<|im_end|>"),
        system=("<|im_system|>system<|im_middle|>", "<|im_end|>"),
        answer=("<|im_assistant|>assistant<|im_middle|>", "<|im_end|>"),
        thought=("<think>", "</think>"),
        call=(
            "<|tool_call_begin|>functions.{name}:{index}<|tool_call_argument_begin|>",
            "<|tool_call_end|>",
        ),
        calls_before="<|tool_calls_section_begin|>",
        calls_after="<|tool_calls_section_end|>",
        ends=("<|im_end|>",),
        special=("<|im_user|>", "<|im_system|>", "<|im_assistant|>", "<|im_middle|>"),
        added=(
            *("<think>", "</think>", "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
            *("<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"),
        ),
    ),
    "minimax_m2": Dialect(
        calls="minimax_m2",
        reasoning="minimax_m2",
        user=("]~b]user\n", "[e~[\n"),
        tool=("]~b]tool\n<response>", "</response>[e~[\n"),
        system=("]~b]system\n", "[e~[\n"),
        answer=("]~b]ai\n", "[e~[\n"),
        opens_thought=True,
        call=('<invoke name="{name}">\n', "</invoke>\n"),
        arguments="named",
        calls_before="<minimax:tool_call>\n",
        calls_after="</minimax:tool_call>",
        ends=("[e~[",),
        special=("]~b]", "[e~["),
        added=("<think>", "</think>", "<minimax:tool_call>", "</minimax:tool_call>"),
    ),
    "seed_oss": Dialect(
        calls="seed_oss",
        reasoning="seed_oss",
        user=("<seed:bos>user\n", "<seed:eos>"),
        tool=("<seed:bos>tool\n", "<seed:eos>"),
        system=("<seed:bos>system\n", "<seed:eos>"),
        answer=("<seed:bos>assistant\n", "<seed:eos>"),
        thought=("<seed:think>", "</seed:think>\n"),
        call=("<seed:tool_call>\n<function={name}>\n", "</function>\n</seed:tool_call>"),
        arguments="close",
        calls_between="\n",
        ends=("<seed:eos>",),
        special=("<seed:bos>",),
        added=("<seed:think>", "</seed:think>", "<seed:tool_call>", "</seed:tool_call>"),
    ),
}
"""By vLLM's name of the format of calls."""
