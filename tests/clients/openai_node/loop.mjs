// OpenAI's own client for Node, unpatched: tools in a loop with a model that reasons.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodFunction, zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const client = new OpenAI({ baseURL: process.env.SPECDEC_URL, apiKey: "secret", maxRetries: 0 });
const completions = client.chat.completions;
const model = "scripted";
const Weather = z.object({ city: z.string(), unit: z.enum(["celsius", "fahrenheit"]) });
const Person = z.object({ name: z.string(), age: z.number().int() });
const DEGREES = { Paris: "22", Rome: "18" };
const tools = [zodFunction({ name: "get_weather", parameters: Weather })];
const asked = (content) => ({ role: "user", content });
const named = { type: "function", function: { name: "get_weather" } };

async function whole(body) {
  const { choices, usage } = await completions.create({ model, ...body });
  const { reasoning_tokens } = usage.completion_tokens_details;
  assert(0 < reasoning_tokens && reasoning_tokens < usage.completion_tokens);
  return choices[0];
}

async function streamed(body) {
  const message = { role: "assistant", content: null };
  let finish_reason = null;
  for await (const { choices } of await completions.create({ model, stream: true, ...body })) {
    const { delta } = choices[0];
    finish_reason = choices[0].finish_reason ?? finish_reason;
    for (const name of ["reasoning", "reasoning_content", "content"])
      if (delta[name]) message[name] = (message[name] ?? "") + delta[name];
    for (const { index, ...call } of delta.tool_calls ?? []) (message.tool_calls ??= [])[index] = call;
  }
  return { message, finish_reason };
}

async function conversation(answer, question, fields = {}) {
  const messages = [asked(question)];
  const thoughts = [];
  for (let step = 0; step < 4; step += 1) {
    const { message, finish_reason } = await answer({ messages, tools, ...fields });
    assert.equal(message.reasoning, message.reasoning_content);
    thoughts.push(message.reasoning);
    messages.push(message);
    if (!message.tool_calls?.length) {
      assert.equal(finish_reason, "stop");
      return { thoughts, messages, text: message.content };
    }
    assert.equal(finish_reason, "tool_calls");
    for (const { id, function: called } of message.tool_calls) {
      const { city } = Weather.parse(JSON.parse(called.arguments));
      messages.push({ role: "tool", tool_call_id: id, content: DEGREES[city] });
    }
  }
}

async function toolLoop() {
  for (const answer of [whole, streamed]) {
    const { thoughts, messages, text } = await conversation(answer, "Weather in Paris?");
    assert.deepEqual(thoughts, ["I need the weather first.", "The tool returned 22."]);
    assert.equal(messages[1].content, null);
    assert.equal(text, "It is 22 degrees in Paris. I looked it up as planned.");
  }
}

async function parallelCalls() {
  for (const answer of [whole, streamed]) {
    for (const parallel_tool_calls of [true, false]) {
      const fields = { parallel_tool_calls };
      const { thoughts, messages, text } = await conversation(answer, "Weather in Paris and Rome?", fields);
      assert.equal(thoughts[0], "Two cities <b>:\nParis, Rome.");
      assert.equal(messages[1].content, "I look both up.");
      const ids = messages.flatMap((message) => message.tool_calls ?? []).map((call) => call.id);
      assert.equal(new Set(ids).size, 2);
      if (!parallel_tool_calls) assert.equal(messages[1].tool_calls.length, 1);
      assert.equal(text, "Paris has 22 degrees and Rome has 18 🙂");
    }
  }
}

async function forcedCalls() {
  for (const tool_choice of ["required", named]) {
    for (const answer of [whole, streamed]) {
      const { message } = await answer({ messages: [asked("Weather in Paris?")], tools, tool_choice });
      assert.equal(message.reasoning, "I need the weather first.");
      assert.equal(message.tool_calls.length, 1);
      const read = Weather.parse(JSON.parse(message.tool_calls[0].function.arguments));
      assert.deepEqual(read, { city: "Paris", unit: "celsius" });
    }
  }
}

async function toolRunner() {
  const run = ({ city }) => DEGREES[city];
  const runnable = [zodFunction({ name: "get_weather", parameters: Weather, function: run })];
  const answers = {
    "Weather in Paris and Rome?": "Paris has 22 degrees and Rome has 18 🙂",
    "Weather in Paris?": "It is 22 degrees in Paris.", // sends no reasoning
  };
  for (const stream of [false, true]) {
    for (const [question, answer] of Object.entries(answers)) {
      const runner = completions.runTools({ model, messages: [asked(question)], tools: runnable, stream });
      assert.equal(await runner.finalContent(), answer);
    }
  }
}

async function structuredOutput() {
  const body = { model, messages: [asked("Describe Ada as JSON.")] };
  body.response_format = zodResponseFormat(Person, "person");
  const { message } = (await completions.parse(body)).choices[0];
  assert.deepEqual(message.parsed, { name: "Ada", age: 36 });
  assert.equal(message.reasoning, 'Ada is 36: {"age": 36}.');
  const final = await completions.stream(body).finalChatCompletion();
  assert.deepEqual(final.choices[0].message.parsed, { name: "Ada", age: 36 });
}

for (const scenario of [toolLoop, parallelCalls, forcedCalls, toolRunner, structuredOutput]) {
  await scenario();
  console.log("ok", scenario.name);
}
console.log("ok loop");
