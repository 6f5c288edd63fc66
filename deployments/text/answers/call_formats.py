"""Formats of tool calls by vLLM's names, as data."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from deployments.text.answers.formats import CallFormat, ParameterFormat


def _function(name: str, arguments: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


_NAMED = _function("{name}", "{content}")
_GAP = r"\s{0,8}"
"""White space between two marks. Its bound also bounds how long text waits for the second one."""


def _json_ends_after(bracket: str) -> str:
    """Return the pattern of the place after JSON that no mark closes.

    Within JSON, only a comma or another bracket follows one that closes.
    """
    return rf"(?<=\{bracket})(?:\s{{0,200}}\Z|(?=\s{{0,200}}[^\s}}\],]))"


_HARMONY_TO = r" to=functions\.(?P<name>[^\s<]{1,256})"
_HERMES = CallFormat(
    field={
        "open_pattern": rf"<tool_call>{_GAP}(?=\{{)",
        "close": "</tool_call>",
        "repeats": True,
        "content": "json",
        "transform": {"type": "function", "function": "{content}"},
    },
    opening='<tool_call>\n{"name": {json_name}, "arguments": ',
    closing="}\n</tool_call>",
    between="\n",
)
_QWEN3_CODER = CallFormat(
    field={
        "open_pattern": rf"(?:<tool_call>{_GAP})?<function=(?P<name>[^>\n]{{1,256}})>",
        "close": "</function>",
        "repeats": True,
        "content": "xml-inline",
        "content_args": {
            "tag_pattern": r"<parameter=(?P<key>[^<>\n]+)>\n?(?P<value>.*?)\n?</parameter>"
        },
        "transform": _NAMED,
    },
    opening="<tool_call>\n<function={name}>\n",
    closing="</function>\n</tool_call>",
    parameters=ParameterFormat(opening="<parameter={key}>\n", closing="\n</parameter>\n"),
    between="\n",
    tail="</tool_call>",
)
_SEED_OSS = CallFormat(
    field={
        "open_pattern": rf"<seed:tool_call>{_GAP}<function=(?P<name>[^>\n]{{1,256}})>",
        "close": "</function>",
        "repeats": True,
        "content": "xml-inline",
        "content_args": {"tag_pattern": r"<parameter=(?P<key>[^<>\n]+)>(?P<value>.*?)</parameter>"},
        "transform": _NAMED,
    },
    opening="<seed:tool_call>\n<function={name}>\n",
    closing="</function>\n</seed:tool_call>",
    parameters=ParameterFormat(opening="<parameter={key}>", closing="</parameter>\n"),
    between="\n",
    tail="</seed:tool_call>",
)
_LLAMA3_JSON = CallFormat(
    field={
        "open_pattern": rf"(?:<\|python_tag\|>{_GAP}|;{_GAP})?"
        rf"(?=\{{{_GAP}(?:\"type\"{_GAP}:{_GAP}\"function\"{_GAP},{_GAP})?\"name\"{_GAP}:)",
        "close_pattern": _json_ends_after("}"),
        "repeats": True,
        "content": "json",
        "transform": _function("{content.name}", "{content.parameters}"),
    },
    opening='{"name": {json_name}, "parameters": ',
    closing="}",
    between="; ",
)
_MISTRAL = CallFormat(
    field={
        "open_pattern": r"\[TOOL_CALLS\](?P<name>[^\s\[{]{1,256})"
        r"(?:\[CALL_ID\](?P<id>[^\[]{1,64}))?(?:\[ARGS\]|(?=\{))",
        "close_pattern": _json_ends_after("}"),
        "repeats": True,
        "content": "json",
        "transform": _NAMED,
    },
    older_field={
        "open_pattern": rf"\[TOOL_CALLS\]{_GAP}(?=\[)",
        "close_pattern": r"(?<!TOOL_CALLS\])" + _json_ends_after("]"),
        "repeats": True,
        "content": "json",
    },
    opening="[TOOL_CALLS]{name}[ARGS]",
    closing="",
    call_id_length=9,
)
_GLM_FIELD = {
    "open_pattern": rf"<tool_call>{_GAP}(?P<name>[^\s<{{][^\n<{{]{{0,255}}?){_GAP}"
    r"(?=<arg_key>|</tool_call>)",
    "close": "</tool_call>",
    "repeats": True,
    "content": "xml-inline",
    "content_args": {
        "tag_pattern": r"<arg_key>(?P<key>[^<]+)</arg_key>\s*<arg_value>(?P<value>.*?)</arg_value>"
    },
    "transform": _NAMED,
}
_GLM45 = CallFormat(
    field=_GLM_FIELD,
    opening="<tool_call>{name}\n",
    closing="</tool_call>",
    parameters=ParameterFormat(
        opening="<arg_key>{key}</arg_key>\n<arg_value>", closing="</arg_value>\n"
    ),
    between="\n",
)
_GLM47 = CallFormat(
    field=_GLM_FIELD,
    opening="<tool_call>{name}",
    closing="</tool_call>",
    parameters=ParameterFormat(
        opening="<arg_key>{key}</arg_key><arg_value>", closing="</arg_value>"
    ),
)
_DEEPSEEK_BEGIN = rf"(?:<｜tool▁calls▁begin｜>{_GAP})?<｜tool▁call▁begin｜>"
_DEEPSEEK_V3 = CallFormat(
    field={
        "open_pattern": _DEEPSEEK_BEGIN
        + r"function<｜tool▁sep｜>(?P<name>[^\n<]{1,256})\n```json\n",
        "close_pattern": rf"{_GAP}```{_GAP}<｜tool▁call▁end｜>",
        "repeats": True,
        "content": "json",
        "transform": _NAMED,
    },
    opening="<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n",
    closing="\n```<｜tool▁call▁end｜>",
    before="<｜tool▁calls▁begin｜>",
    between="\n",
    after="<｜tool▁calls▁end｜>",
    tail="<｜tool▁calls▁end｜>",
)
_DEEPSEEK_V31 = CallFormat(
    field={
        "open_pattern": _DEEPSEEK_BEGIN + r"(?P<name>[^\n<]{1,256})<｜tool▁sep｜>",
        "close": "<｜tool▁call▁end｜>",
        "repeats": True,
        "content": "json",
        "transform": _NAMED,
    },
    opening="<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>",
    closing="<｜tool▁call▁end｜>",
    before="<｜tool▁calls▁begin｜>",
    after="<｜tool▁calls▁end｜>",
    tail="<｜tool▁calls▁end｜>",
)


def _dsml(section: str) -> CallFormat:
    """Return DeepSeek's markup from V3.2 on, whose calls are in `section`."""
    opening, closing = f"<｜DSML｜{section}>", f"</｜DSML｜{section}>"
    return CallFormat(
        field={
            "open_pattern": rf"(?:{opening}{_GAP})?"
            r"<｜DSML｜invoke name=\"(?P<name>[^\"]{1,256})\">",
            "close": "</｜DSML｜invoke>",
            "repeats": True,
            "content": "xml-inline",
            "content_args": {
                "tag_pattern": r"<｜DSML｜parameter name=\"(?P<key>[^\"]+)\""
                r"(?: string=\"(?:true|false)\")?>(?P<value>.*?)</｜DSML｜parameter>"
            },
            "transform": _NAMED,
        },
        opening='<｜DSML｜invoke name="{name}">\n',
        closing="</｜DSML｜invoke>\n",
        parameters=ParameterFormat(
            opening='<｜DSML｜parameter name="{key}" string="true">',
            other_opening='<｜DSML｜parameter name="{key}" string="false">',
            closing="</｜DSML｜parameter>\n",
        ),
        before=f"{opening}\n",
        after=closing,
        tail=closing,
    )


_OPENAI = CallFormat(
    field={
        "open_pattern": r"(?:<\|start\|>assistant)?(?:"
        rf"{_HARMONY_TO}<\|channel\|>(?:commentary|analysis)"
        rf"|<\|channel\|>(?:commentary|analysis){_HARMONY_TO})"
        r" ?(?:<\|constrain\|>)?[a-z]{0,16}<\|message\|>",
        "close_pattern": r"<\|call\|>|\Z",
        "repeats": True,
        "content": "json",
        "transform": _NAMED,
    },
    opening="<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>",
    closing="<|call|>",
)
_GEMMA4 = CallFormat(
    field={
        "open_pattern": r"<\|tool_call>call:(?P<name>[^\s{<]{1,256})(?=\{)",
        "close": "<tool_call|>",
        "repeats": True,
        "content": "json",
        "content_args": {"unquoted_keys": True, "string_delims": [['<|"|>', '<|"|>']]},
        "transform": _NAMED,
    },
    opening="<|tool_call>call:{name}{",
    closing="}<tool_call|>",
    parameters=ParameterFormat(opening="{key}:", closing="", between=",", quote='<|"|>'),
)
_GRANITE = CallFormat(
    field={
        "open_pattern": rf"<\|?tool_call\|?>{_GAP}(?=\[)",
        "close_pattern": _json_ends_after("]"),
        "repeats": True,
        "content": "json",
    },
    opening='{"name": {json_name}, "arguments": ',
    closing="}",
    before="<|tool_call|>[",
    between=", ",
    after="]",
)
_KIMI_K2 = CallFormat(
    field={
        "open_pattern": rf"(?:<\|tool_calls_section_begin\|>{_GAP})?<\|tool_call_begin\|>{_GAP}"
        rf"(?P<id>(?:functions\.)?(?P<name>[^\s<:]{{1,256}}):\d{{1,4}}){_GAP}"
        rf"<\|tool_call_argument_begin\|>",
        "close": "<|tool_call_end|>",
        "repeats": True,
        "content": "json",
        "transform": {**_NAMED, "id": "{id}"},
    },
    opening="<|tool_call_begin|>functions.{name}:{index}<|tool_call_argument_begin|>",
    closing="<|tool_call_end|>",
    before="<|tool_calls_section_begin|>",
    after="<|tool_calls_section_end|>",
    tail="<|tool_calls_section_end|>",
)
_MINIMAX_M2 = CallFormat(
    field={
        "open_pattern": rf"(?:<minimax:tool_call>{_GAP})?"
        r"<invoke name=\"(?P<name>[^\"]{1,256})\">",
        "close": "</invoke>",
        "repeats": True,
        "content": "xml-inline",
        "content_args": {
            "tag_pattern": r"<parameter name=\"(?P<key>[^\"]+)\">(?P<value>.*?)</parameter>"
        },
        "transform": _NAMED,
    },
    opening='<invoke name="{name}">\n',
    closing="</invoke>\n",
    parameters=ParameterFormat(opening='<parameter name="{key}">', closing="</parameter>\n"),
    before="<minimax:tool_call>\n",
    after="</minimax:tool_call>",
    tail="</minimax:tool_call>",
)

CALL_FORMATS: Mapping[str, CallFormat] = MappingProxyType(
    {
        "hermes": _HERMES,
        "qwen3_coder": _QWEN3_CODER,
        "llama3_json": _LLAMA3_JSON,
        "mistral": _MISTRAL,
        "glm45": _GLM45,
        "glm47": _GLM47,
        "deepseek_v3": _DEEPSEEK_V3,
        "deepseek_v31": _DEEPSEEK_V31,
        "deepseek_v32": _dsml("function_calls"),
        "deepseek_v4": _dsml("tool_calls"),
        "openai": _OPENAI,
        "gemma4": _GEMMA4,
        "granite": _GRANITE,
        "kimi_k2": _KIMI_K2,
        "minimax_m2": _MINIMAX_M2,
        "seed_oss": _SEED_OSS,
    }
)
"""Formats of tool calls by vLLM's names for `--tool-call-parser`."""
