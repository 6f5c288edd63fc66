"""Answers as models write them: reasoning and tool calls, read from text and asked for."""
