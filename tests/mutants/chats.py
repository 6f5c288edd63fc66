"""Defects of what the messages of a conversation become."""

from tests.mutants.mutant import Mutant

_TEMPLATES = "tests/deployments/text/test_chat_templates.py::"
_MESSAGES = "tests/deployments/text/test_chat_messages.py::"
_TOKENS = "tests/deployments/text/test_control_tokens.py::"

MUTANTS = (
    Mutant(
        name="dropped-messages-pass",
        path="deployments/text/chat_rendering.py",
        old='raise InvalidRequestError(message, param=where, code="unsupported_value")',
        new="pass",
        breaks="an instruction that the template does not show is lost",
        killed_by=_TEMPLATES + "test_what_a_template_drops_is_refused_by_its_field",
    ),
    Mutant(
        name="prefill-found-by-its-first-place",
        path="deployments/text/chat_rendering.py",
        old="rendered.rfind(_TAG.rstrip())",
        new='rendered.rfind(final or "x") + len(final)',
        breaks="the prompt of a continued message ends elsewhere",
        killed_by=_TEMPLATES + "test_a_continued_message_ends_the_prompt_as_in_transformers",
    ),
    Mutant(
        name="parts-are-glued",
        path="deployments/text/chat_messages.py",
        old='return "\\n".join(',
        new='return "".join(',
        breaks="the last word of a part and the first of the next become one",
        killed_by=_MESSAGES + "test_text_parts_are_joined_by_line_ends_and_hints_are_left_out",
    ),
    Mutant(
        name="texts-forge-marks",
        path="deployments/text/control_tokens.py",
        old="ids += spelled[part]",
        new="ids += encode(part, False)",
        breaks="a user's text ends its turn and begins one of the system",
        killed_by=_TOKENS + "test_only_the_template_writes_control_tokens",
    ),
)
