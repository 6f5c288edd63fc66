// Vercel's AI SDK, unpatched: tools in a loop with a model that reasons.
import assert from "node:assert/strict";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, isStepCount, Output, streamText, tool } from "ai";
import { z } from "zod";

const settings = { baseURL: process.env.SPECDEC_URL, apiKey: "secret" };
const compatible = createOpenAICompatible({
  ...settings,
  name: "specdec",
  includeUsage: true,
  supportsStructuredOutputs: true,
}).chatModel("scripted");
const openai = createOpenAI(settings).chat("scripted"); // reads no reasoning
const Person = z.object({ name: z.string(), age: z.number().int() });
const inputSchema = z.object({ city: z.string(), unit: z.enum(["celsius", "fahrenheit"]) });
const DEGREES = { Paris: "22", Rome: "18" };
const get_weather = tool({ inputSchema, execute: async ({ city }) => DEGREES[city] });
const loop = { tools: { get_weather }, stopWhen: isStepCount(4) };
const answers = [generateText, streamText];

async function toolLoop() {
  for (const answer of answers) {
    const result = answer({ model: compatible, prompt: "Weather in Paris?", ...loop });
    const steps = await (await result).steps;
    const thoughts = steps.map((step) => step.reasoningText);
    assert.deepEqual(thoughts, ["I need the weather first.", "The tool returned 22."]);
    assert.equal(steps[0].text, "");
    assert.equal(steps[0].finishReason, "tool-calls");
    assert.equal(steps[1].text, "It is 22 degrees in Paris. I looked it up as planned.");
    for (const { usage } of steps) {
      const { reasoningTokens, textTokens } = usage.outputTokenDetails;
      assert(reasoningTokens > 0 && textTokens > 0);
    }
  }
}

async function parallelCalls() {
  for (const answer of answers) {
    const result = answer({ model: compatible, prompt: "Weather in Paris and Rome?", ...loop });
    const steps = await (await result).steps;
    assert.equal(steps[0].reasoningText, "Two cities <b>:\nParis, Rome.");
    assert.equal(steps[0].text, "I look both up.");
    const cities = steps.flatMap((step) => step.toolCalls).map((call) => call.input.city);
    assert.deepEqual(cities, ["Paris", "Rome"]);
    assert.equal(steps.at(-1).text, "Paris has 22 degrees and Rome has 18 🙂");
  }
}

async function reasoningParts() {
  const { fullStream } = streamText({ model: compatible, prompt: "My name is Ada." });
  const kinds = [];
  for await (const { type } of fullStream) if (kinds.at(-1) !== type) kinds.push(type);
  const order = ["reasoning-start", "reasoning-delta", "reasoning-end", "text-start", "text-delta"];
  assert.deepEqual(kinds.filter((kind) => order.includes(kind)), order);
}

async function forcedCalls() {
  for (const model of [compatible, openai]) {
    for (const toolChoice of ["required", { type: "tool", toolName: "get_weather" }]) {
      const tools = { get_weather: tool({ inputSchema }) };
      const result = await generateText({ model, prompt: "Weather in Paris?", tools, toolChoice });
      assert.deepEqual(result.toolCalls[0].input, { city: "Paris", unit: "celsius" });
    }
  }
}

async function structuredOutput() {
  const output = Output.object({ schema: Person });
  for (const model of [compatible, openai]) {
    for (const answer of answers) {
      const result = await answer({ model, prompt: "Describe Ada as JSON.", output });
      assert.deepEqual(await result.output, { name: "Ada", age: 36 });
      const thought = model === openai ? undefined : 'Ada is 36: {"age": 36}.';
      assert.equal(await result.reasoningText, thought);
    }
  }
}

async function otherProvider() {
  for (const answer of answers) {
    const result = await answer({ model: openai, prompt: "Weather in Paris?", ...loop });
    assert.equal(await result.text, "It is 22 degrees in Paris.");
  }
}

const scenarios = [toolLoop, parallelCalls, reasoningParts, forcedCalls, structuredOutput, otherProvider];
for (const scenario of scenarios) {
  await scenario();
  console.log("ok", scenario.name);
}
console.log("ok loop");
