"""LiteLLM, unpatched: tools in a loop with a model that reasons."""

import json
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # downloads nothing

import litellm

FIELDS = {
    "model": "openai/scripted",
    "api_base": os.environ["SPECDEC_URL"],
    "api_key": "secret",
    "num_retries": 0,
}
DEGREES = {"Paris": "22", "Rome": "18"}
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}},
    "required": ["city", "unit"],
}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}


def whole(**fields):
    return litellm.completion(**FIELDS, **fields)


def streamed(**fields):
    chunks = litellm.completion(
        **FIELDS, **fields, stream=True, stream_options={"include_usage": True}
    )
    return litellm.stream_chunk_builder(list(chunks))


def conversation(answer, question):
    """All messages of the model; each is sent back as it is."""
    messages = [{"role": "user", "content": question}]
    told = []
    while not told or told[-1].tool_calls:
        whole_answer = answer(messages=messages, tools=[TOOL])
        details = whole_answer.usage.completion_tokens_details
        assert 0 < details.reasoning_tokens < whole_answer.usage.completion_tokens
        told.append(whole_answer.choices[0].message)
        messages.append(told[-1])
        for call in told[-1].tool_calls or ():
            city = json.loads(call.function.arguments)["city"]
            messages.append({"role": "tool", "tool_call_id": call.id, "content": DEGREES[city]})
    return told


def tool_loop() -> None:
    for answer in (whole, streamed):
        first, last = conversation(answer, "Weather in Paris?")
        assert not first.content
        assert first.reasoning_content == "I need the weather first."
        assert last.reasoning_content == "The tool returned 22."
        assert last.content == "It is 22 degrees in Paris. I looked it up as planned."


def parallel_calls() -> None:
    for answer in (whole, streamed):
        first, *_, last = conversation(answer, "Weather in Paris and Rome?")
        assert first.reasoning_content == "Two cities <b>:\nParis, Rome."
        assert first.content == "I look both up."
        assert last.content == "Paris has 22 degrees and Rome has 18 🙂"


for case in (tool_loop, parallel_calls):
    case()
    print("ok", case.__name__)
print("ok loop")
