"""OpenAI's routes: what they take and what they answer."""
