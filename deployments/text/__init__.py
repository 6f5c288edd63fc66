"""Chat templates, characters of tokens, tool calls, grammars: what ingresses and commands read."""
