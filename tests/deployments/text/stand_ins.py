"""Chat templates of our own, with the constructs of published ones."""

from __future__ import annotations

from deployments.text.chat_rendering import ChatTemplate, compile_template

_HERMES_TOOLS = """\
{%- if tools %}<|im_start|>tools
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}"""

_PLAIN = """\
{{ bos_token }}{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

_SILENT = """\
{% for message in messages %}
{% if message['role'] == 'system' %}<<SYS>>{{ message['content'] }}<</SYS>>
{% elif message['role'] == 'user' %}[INST] {{ message['content'] }} [/INST]
{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token }}
{% endif %}
{% endfor %}"""

_GENERATION = (
    _HERMES_TOOLS
    + """\
{% for message in messages %}
{%- if message.role == 'assistant' -%}
<assistant>{% generation %}
{%- set thought = message.reasoning if message.reasoning is string
    else message.reasoning_content | default('') -%}
<think>{{ thought }}</think>{{ message.content }}
{%- for call in message.tool_calls | default([]) -%}
<tool_call>{{ call.function | tojson }}</tool_call>
{%- endfor %}</assistant>{% endgeneration %}
{%- else -%}<{{ message.role }}>{{ message.content }}</{{ message.role }}>
{%- endif %}
{% endfor %}{% if add_generation_prompt %}<assistant>
{{- '<think>' if enable_thinking | default(true) }}
{%- endif %}"""
)

_JSON_ARGUMENTS = """\
{% if tools %}{{ tools | tojson(indent=2, separators=(',', ': '), sort_keys=True) }}{% endif %}
{% for message in messages %}
<|{{ message.role }}|>
{% if message.role == 'tool' %}{{ {'result': message.content} | tojson(ensure_ascii=False) }}
{% else %}{{ message.content }}
{% endif %}
{% for call in message.tool_calls or [] %}
<call>{{ call.function.name }}
{% for key, value in call.function.arguments | items %}
<key>{{ key }}</key>
<value>{{ value if value is string else value | tojson(ensure_ascii=False) }}</value>
{% endfor %}
</call>
{% endfor %}
{% endfor %}"""

_DATED = """\
{%- set today = date_string | default(strftime_now('%d %b %Y')) -%}
<|begin|>Today is {{ today }}. Effort: {{ reasoning_effort | default('medium', true) }}.
{%- if messages and messages[0].role == 'system' %} {{ messages[0].content }}
{%- set messages = messages[1:] %}{% endif %}<|eot|>
{%- for message in messages %}
<|{{ message['role'] | lower }}|>{{ message['content'] or '' }}<|eot|>
{%- endfor %}"""

_LOOPS = """\
{%- macro shown(message) -%}
{%- if message.content is string -%}{{ message.content }}
{%- elif message.content is mapping or message.content is none -%}
{%- else -%}{%- for part in message.content -%}{{ part.text }}{%- endfor -%}{%- endif -%}
{%- endmacro -%}
{%- set ns = namespace(last=-1, first=true) -%}
{%- for message in messages -%}
{%- if message.role != 'user' -%}{%- continue -%}{%- endif -%}
{%- set ns.last = loop.index0 -%}
{%- endfor -%}
{%- for message in messages -%}
{%- if message.role == 'stop' -%}{%- break -%}{%- endif -%}
{{ '' if ns.first else '\\n' }}[{{ message.role }}{{ '*' if loop.index0 == ns.last }}]
{{- shown(message) }}
{%- set ns.first = false -%}
{%- endfor -%}"""

_REASONING = (
    _HERMES_TOOLS
    + """\
{%- set ns = namespace(last=-1) %}
{%- for message in messages %}
{%- if message.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}
{%- endfor %}
{%- for message in messages %}
{%- set content = message.content if message.content is string else '' %}
{%- if message.role == 'assistant' %}
{%- set thought = '' %}
{%- if message.reasoning_content is string %}{% set thought = message.reasoning_content %}
{%- elif '</think>' in content %}
{%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
{%- set content = content.split('</think>')[-1].lstrip('\\n') %}
{%- endif %}
{{- '<|im_start|>assistant\\n' }}
{%- if loop.index0 > ns.last and thought %}
{{- '<think>\\n' + thought.strip() + '\\n</think>\\n\\n' }}
{%- endif %}
{{- content }}
{%- for call in message.tool_calls or [] %}
{{- '\\n<tool_call>\\n' + (call.function | tojson) + '\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- elif message.role == 'tool' %}
{%- if loop.first or loop.previtem.role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}
{{- '\\n<tool_response>\\n' + content + '\\n</tool_response>' }}
{%- if loop.last or loop.nextitem.role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif %}
{%- else %}
{{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and not enable_thinking %}
{{- '<think>\\n\\n</think>\\n\\n' }}
{%- endif %}
{%- endif %}"""
)

_TOOL_USE = (
    _HERMES_TOOLS
    + """\
{% for message in messages %}<|{{ message.role }}|>{{ message.content }}
{% for call in message.tool_calls | default([]) %}{{ call | tojson }}
{% endfor %}{% endfor %}"""
)

_CHANNELS = """\
<|start|>system<|message|>Reasoning: {{ reasoning_effort | default('medium') }}<|end|>
{%- if messages and messages[0].role in ['developer', 'system'] %}
{{- '<|start|>developer<|message|>' + messages[0].content + '<|end|>' }}
{%- set messages = messages[1:] %}
{%- endif %}
{%- for tool in tools or [] %}
{{- '// ' + (tool.function.description or '') + '\\ntype ' + tool.function.name + ';\\n' }}
{%- endfor %}
{%- for message in messages %}
{%- if message.role == 'assistant' %}
{%- if 'tool_calls' in message %}
{%- if message.content and message.thinking %}
{{- raise_exception('Cannot pass both content and thinking with tool calls.') }}
{%- elif message.content or message.thinking %}
{{- '<|start|>assistant<|channel|>analysis<|message|>' }}
{{- (message.content or message.thinking) + '<|end|>' }}
{%- endif %}
{%- set call = message.tool_calls[0].function %}
{{- '<|start|>assistant to=' + call.name + '<|message|>' + (call.arguments | tojson) + '<|call|>' }}
{%- else %}
{{- '<|start|>assistant<|channel|>final<|message|>' + message.content + '<|end|>' }}
{%- endif %}
{%- elif message.role == 'tool' %}
{{- '<|start|>functions<|message|>' + (message.content | tojson) + '<|end|>' }}
{%- elif message.role == 'user' %}
{{- '<|start|>user<|message|>' + message.content + '<|end|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|start|>assistant{% endif %}"""

_ALTERNATING = """\
{{ bos_token }}{% if messages[0]['role'] == 'system' %}
{%- set system = messages[0]['content'].strip() + '\\n\\n' %}
{%- set messages = messages[1:] %}
{%- else %}{% set system = '' %}{% endif %}
{%- for message in messages %}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
{%- endif %}
{%- if message['role'] == 'user' %}
{{- '[INST] ' + (system if loop.first else '') + message['content'].strip() + ' [/INST]' }}
{%- else %}{{ ' ' + message['content'].strip() + eos_token }}{% endif %}
{%- endfor %}"""

_TRIMMING = """\
{% for message in messages %}
{% if message.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
<start_of_turn>{{ 'model' if message.role == 'assistant' else message.role }}
{{ message.content | trim }}<end_of_turn>
{% endfor %}
{% if add_generation_prompt %}<start_of_turn>model
{% endif %}"""

_NULL_CONTENT = """\
{%- set ns = namespace(system='') -%}
{%- for message in messages %}
{%- if message['role'] == 'system' %}{% set ns.system = message['content'] %}{% endif %}
{%- endfor %}
{{- bos_token + ns.system }}
{%- for message in messages %}
{%- if message['role'] == 'user' %}{{ '<User>' + message['content'] }}
{%- elif message['role'] == 'assistant' and message['content'] is none %}
{%- for call in message['tool_calls'] %}
{{- '<Call>' + call['function']['name'] }}
{{- '\\n```json\\n' + call['function']['arguments'] + '\\n```' }}
{%- endfor %}
{%- elif message['role'] == 'assistant' %}
{{- '<Assistant>' + message['content'].split('</think>')[-1] }}
{%- elif message['role'] == 'tool' %}{{ '<Output>' + message['content'] }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}<Assistant>{% endif %}"""

_ONE_CALL = """\
{%- for message in messages %}
{%- if message.tool_calls %}
{%- if message.tool_calls | length != 1 %}
{{- raise_exception('This model only supports single tool-calls at once!') }}
{%- endif %}
{{- '<|assistant|>' + (message.tool_calls[0].function | tojson) + '<|eot|>' }}
{%- elif message.role in ['tool', 'ipython'] %}
{%- set content = message.content %}
{{- '<|ipython|>' + (content if content is string else content | tojson) + '<|eot|>' }}
{%- else %}
{{- '<|' + message.role + '|>' }}
{%- if loop.first %}{% for tool in tools or [] %}{{ tool | tojson(indent=4) }}{% endfor %}
{%- endif %}
{{- message.content | trim + '<|eot|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|assistant|>{% endif %}"""

SOURCES: dict[str, tuple[str, str | None]] = {
    "plain": (_PLAIN, None),
    "silent": (_SILENT, None),
    "generation": (_GENERATION, None),
    "json arguments": (_JSON_ARGUMENTS, None),
    "dated": (_DATED, None),
    "loops": (_LOOPS, None),
    "reasoning": (_REASONING, None),
    "tool use": (_PLAIN, _TOOL_USE),
    "channels": (_CHANNELS, None),
    "alternating": (_ALTERNATING, None),
    "trimming": (_TRIMMING, None),
    "null content": (_NULL_CONTENT, None),
    "one call": (_ONE_CALL, None),
}
"""Source, and the source for requests with tools, by name."""

STAND_INS: dict[str, ChatTemplate] = {
    name: compile_template(*sources) for name, sources in SOURCES.items()
}
VARIABLES = {"bos_token": "<s>", "eos_token": "</s>"}
