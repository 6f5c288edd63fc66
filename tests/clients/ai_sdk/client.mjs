// Vercel's AI SDK, unpatched, in chat mode, against the server at $SPECDEC_URL.
import assert from "node:assert/strict";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, generateText, isStepCount, Output, streamText, tool } from "ai";
import { z } from "zod";

const settings = { baseURL: process.env.SPECDEC_URL, apiKey: "secret" };
const compatible = createOpenAICompatible({
  ...settings,
  name: "specdec",
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const openai = createOpenAI(settings);
const models = (name) => [compatible.chatModel(name), openai.chat(name)];
const Person = z.object({ name: z.string(), age: z.number().int() });
const inputSchema = z.object({ city: z.string(), unit: z.enum(["celsius", "fahrenheit"]) });

async function twoTurns(model) {
  const messages = [{ role: "user", content: "My name is Ada." }];
  const first = await generateText({ model, messages, instructions: "Be brief." });
  assert.equal(first.text, "Hello Ada.");
  assert.equal(first.finishReason, "stop");
  messages.push(...first.response.messages, { role: "user", content: "What is my name?" });
  const second = await generateText({ model, messages });
  assert.equal(second.text, "Your name is Ada.");
}

async function stream(model) {
  const result = streamText({ model, prompt: "Count to five." });
  const texts = [];
  for await (const text of result.textStream) texts.push(text);
  assert.equal(texts.join(""), "1, 2, 3, 4, 5 🙂");
  assert(texts.length > 3);
  assert.equal(await result.finishReason, "stop");
  assert((await result.usage).outputTokens > 5);
}

async function toolCall(model) {
  const get_weather = tool({ description: "Weather of a city.", inputSchema });
  for (const toolChoice of ["required", { type: "tool", toolName: "get_weather" }, "auto"]) {
    const tools = { get_weather };
    const result = await generateText({ model, prompt: "Weather in Paris?", tools, toolChoice });
    assert.equal(result.finishReason, toolChoice.type ? "stop" : "tool-calls");
    assert.deepEqual(result.toolCalls[0].input, { city: "Paris", unit: "celsius" });
  }
}

async function toolLoop(model) {
  const get_weather = tool({ description: "Weather of a city.", inputSchema, execute: async () => "22" });
  const asked = { model, prompt: "Weather in Paris?", tools: { get_weather }, stopWhen: isStepCount(3) };
  assert.equal((await generateText(asked)).text, "It is 22 degrees in Paris.");
  assert.equal(await streamText(asked).text, "It is 22 degrees in Paris.");
}

async function structuredOutput(model) {
  const asked = { model, prompt: "Describe Ada as JSON.", output: Output.object({ schema: Person }) };
  assert.deepEqual((await generateText(asked)).output, { name: "Ada", age: 36 });
  assert.deepEqual(await streamText(asked).output, { name: "Ada", age: 36 });
}

for (const model of models("scripted")) {
  for (const scenario of [twoTurns, stream, toolCall, toolLoop, structuredOutput]) {
    await scenario(model);
    console.log("ok", model.provider, scenario.name);
  }
}

async function rejects(asked, status, words) {
  const isExpected = (error) =>
    APICallError.isInstance(error) && error.statusCode === status && error.message.includes(words);
  await assert.rejects(generateText({ maxRetries: 0, prompt: "Hello", ...asked }), isExpected);
}

for (const model of models("gpt-4o")) await rejects({ model }, 404, "gpt-4o");
for (const model of models("scripted")) await rejects({ model, prompt: "word ".repeat(1100) }, 400, "context");
await rejects({ model: openai("scripted") }, 404, "/v1/chat/completions"); // its default is the Responses API
console.log("ok errors");
