// OpenAI's own client for Node, unpatched, against the server at $SPECDEC_URL.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodFunction, zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const client = new OpenAI({ baseURL: process.env.SPECDEC_URL, apiKey: "secret", maxRetries: 0 });
const completions = client.chat.completions;
const model = "scripted";
const Unit = z.enum(["celsius", "fahrenheit"]);
const Weather = z.object({ city: z.string().describe("Name of the city."), unit: Unit });
const Person = z.object({ name: z.string(), age: z.number().int() });
const tool = zodFunction({ name: "get_weather", parameters: Weather });
const question = { role: "user", content: "Weather in Paris?" };
const named = { type: "function", function: { name: "get_weather" } };

async function twoTurns() {
  const messages = [{ role: "user", content: "My name is Ada." }];
  const first = await completions.create({ model, messages });
  assert.equal(first.choices[0].message.content, "Hello Ada.");
  assert.equal(first.choices[0].finish_reason, "stop");
  messages.push(first.choices[0].message, { role: "user", content: "What is my name?" });
  const second = await completions.create({ model, messages });
  assert.equal(second.choices[0].message.content, "Your name is Ada.");
}

async function stream() {
  const messages = [{ role: "user", content: "Count to five." }];
  const options = { include_usage: true };
  let text = "";
  let usage = null;
  for await (const chunk of await completions.create({ model, messages, stream: true, stream_options: options })) {
    text += chunk.choices[0]?.delta.content ?? "";
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, "1, 2, 3, 4, 5 🙂");
  assert(usage.completion_tokens > 5);
  const runner = completions.stream({ model, messages });
  assert.equal(await runner.finalContent(), "1, 2, 3, 4, 5 🙂");
}

async function toolCall() {
  for (const tool_choice of ["required", named, "auto"]) {
    const first = await completions.parse({ model, messages: [question], tools: [tool], tool_choice });
    const { message, finish_reason } = first.choices[0];
    assert.equal(finish_reason, tool_choice === named ? "stop" : "tool_calls");
    assert.equal(message.content, null);
    assert.deepEqual(message.tool_calls[0].function.parsed_arguments, { city: "Paris", unit: "celsius" });
    const result = { role: "tool", tool_call_id: message.tool_calls[0].id, content: "22" };
    const second = await completions.create({ model, messages: [question, message, result], tools: [tool] });
    assert.equal(second.choices[0].message.content, "It is 22 degrees in Paris.");
  }
}

async function toolRunner() {
  const cities = [];
  const run = zodFunction({
    name: "get_weather",
    parameters: Weather,
    function: ({ city }) => (cities.push(city), "22"),
  });
  for (const isStreamed of [false, true]) {
    const runner = completions.runTools({ model, messages: [question], tools: [run], stream: isStreamed });
    assert.equal(await runner.finalContent(), "It is 22 degrees in Paris.");
  }
  assert.deepEqual(cities, ["Paris", "Paris"]);
}

async function structuredOutput() {
  const messages = [{ role: "user", content: "Describe Ada as JSON." }];
  const response_format = zodResponseFormat(Person, "person");
  const whole = await completions.parse({ model, messages, response_format });
  assert.deepEqual(whole.choices[0].message.parsed, { name: "Ada", age: 36 });
  const final = await completions.stream({ model, messages, response_format }).finalChatCompletion();
  assert.deepEqual(final.choices[0].message.parsed, { name: "Ada", age: 36 });
}

async function errors() {
  const messages = [question];
  const unknown = completions.create({ model: "gpt-4o", messages });
  await assert.rejects(unknown, (e) => e instanceof OpenAI.NotFoundError && e.code === "model_not_found");
  const long = [{ role: "user", content: "word ".repeat(1100) }];
  for (const stream of [false, true]) {
    await assert.rejects(
      completions.create({ model, messages: long, stream }),
      (e) => e instanceof OpenAI.BadRequestError && e.code === "context_length_exceeded",
    );
  }
  await assert.rejects(
    client.responses.create({ model, input: "Hello" }),
    (e) => e instanceof OpenAI.NotFoundError && e.message.includes("/v1/chat/completions"),
  );
}

for (const scenario of [twoTurns, stream, toolCall, toolRunner, structuredOutput, errors]) {
  await scenario();
  console.log("ok", scenario.name);
}
