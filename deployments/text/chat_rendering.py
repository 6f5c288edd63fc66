"""Rendering of a conversation, so that everything that was sent is in the prompt.

A template decides which roles and fields it shows, and silently drops the others. So each
conversation is rendered twice: as it is, for the prompt, and with a mark in each text that must be
shown. A text whose mark is not in the second rendering is missing in the first.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from deployments.text.chat_forms import forms, system_for_developer
from deployments.text.chat_template import ChatTemplate
from deployments.text.template_input import Message, TemplateInput
from deployments.text.template_marks import Marks
from specdec_core.errors import InvalidRequestError

_FORMS_S = 2.0
"""CPU seconds after which no further form of a conversation is tried."""
_TAG = "CONTINUE_FINAL_MESSAGE_TAG "
"""Marks the end of the text to continue. Its space shows whether the template strips texts."""


def render(template: ChatTemplate, given: TemplateInput) -> str:
    """Return the prompt. Raises InvalidRequestError if the template refuses or drops something.

    Templates expect different forms of a conversation. The first form that the template shows
    whole is rendered.
    """
    template = template.for_tools(given.tools)
    refusals: list[InvalidRequestError] = []
    started_s = time.thread_time()
    for messages in forms(known_roles(template, given.messages)):
        if refusals and time.thread_time() - started_s > _FORMS_S:
            break
        try:
            return _checked(template, replace(given, messages=messages))
        except InvalidRequestError as error:
            refusals.append(error)
    raise refusals[0]


def known_roles(template: ChatTemplate, messages: Sequence[Message]) -> list[Message]:
    """Turn a developer's messages into system messages if the template has no such role."""
    given = list(messages)
    return given if "developer" in template.literals else system_for_developer(given)


def _checked(template: ChatTemplate, given: TemplateInput) -> str:
    text = _prompt(template, given)
    marks = Marks()
    try:
        marked = template.render(marks.put(given).by_name)
    except InvalidRequestError:  # it reads the texts, and refuses what it does not show
        return text
    marks.check(marked, is_cut=given.continues_final_message)
    return text


def _prompt(template: ChatTemplate, given: TemplateInput) -> str:
    """Return the rendered text, up to the end of the last message if that is continued.

    The same method as in transformers, so that prompts are the same.
    """
    if not given.continues_final_message:
        return template.render(given.by_name)
    *others, last = given.messages
    final = last["content"]
    if last.get("tool_calls"):
        raise _cannot_continue("it has tool_calls")
    tagged = replace(given, messages=[*others, {**last, "content": final + _TAG}])
    rendered = template.render(tagged.by_name)
    end = rendered.rfind(_TAG.rstrip())
    if end < 0 or final.strip() not in rendered:
        raise _cannot_continue("the chat template does not show the last message as it is")
    strips = not rendered.startswith(_TAG, end)
    return rendered[:end].rstrip() if strips else rendered[:end]


def _cannot_continue(reason: str) -> InvalidRequestError:
    return InvalidRequestError(f"continue_final_message: {reason}", param="continue_final_message")
