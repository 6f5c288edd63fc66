"""The demo models and their drafts."""
