"""Whether an accelerator of its own for the draft pays (docs/draft_accelerator.md)."""
