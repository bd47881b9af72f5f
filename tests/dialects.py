"""Chat templates of reasoning models, written for these tests from how those models' templates behave.

None is a copy: only what the project must cope with is here.
"""

from __future__ import annotations

import copy
from typing import Any

LING = """\
{%- set thinks = enable_thinking is not defined or enable_thinking -%}
<role>SYSTEM</role>
{%- if messages[0].role == 'system' %}{{ messages[0].content ~ '\\n' }}{% endif -%}
{%- for tool in tools or [] %}{{ 'TOOL ' ~ (tool | tojson) ~ '\\n' }}{% endfor -%}
{{- 'detailed thinking ' ~ ('on' if thinks else 'off') ~ '<|role_end|>' -}}
{%- for message in messages -%}
  {%- if message.role == 'user' -%}
    {{- '<role>HUMAN</role>' ~ message.content ~ '<|role_end|>' -}}
  {%- elif message.role == 'tool' -%}
    {{- '<role>OBSERVATION</role>' if loop.previtem.role != 'tool' else '' -}}
    {{- '\\n<tool_response>\\n' ~ message.content ~ '\\n</tool_response>' -}}
    {{- '<|role_end|>' if not loop.nextitem or loop.nextitem.role != 'tool' else '' -}}
  {%- elif message.role == 'assistant' -%}
    {%- set parts = message.content.split('</think>') -%}
    {%- set thought = parts[0].split('<think>')[-1] if parts | length > 1 else '' -%}
    {{- '<role>ASSISTANT</role>\\n<think>' ~ thought ~ '</think>' ~ parts[1:] | join('</think>') -}}
    {{- message.content if parts | length == 1 else '' -}}
    {%- for call in message.tool_calls or [] -%}
      {{- '\\n<tool_call>' ~ call.function.name ~ '\\n' -}}
      {%- for key, value in call.function.arguments.items() -%}
        {{- '<arg_key>' ~ key ~ '</arg_key>\\n<arg_value>' -}}
        {{- (value if value is string else value | tojson) ~ '</arg_value>\\n' -}}
      {%- endfor -%}
      {{- '</tool_call>' -}}
    {%- endfor -%}
    {{- '<|role_end|>' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<role>ASSISTANT</role>\\n<think>' ~ ('' if thinks else '</think>') -}}
{%- endif -%}
"""
"""Tagged calls; every prompt opens a thought, which ``enable_thinking`` false closes at once."""

QWEN = """\
{%- set last = namespace(query=0) -%}
{%- for message in messages -%}
  {%- if message.role == 'user' %}{% set last.query = loop.index0 %}{% endif -%}
{%- endfor -%}
<|im_start|>system
{% for tool in tools or [] %}TOOL {{ tool | tojson }}
{% endfor -%}
<|im_end|>
{% for message in messages -%}
  {%- if message.role == 'tool' -%}
    {{- '<|im_start|>user\\n<tool_response>\\n' ~ message.content ~ '\\n</tool_response><|im_end|>\\n' -}}
  {%- elif message.role == 'user' -%}
    {{- '<|im_start|>user\\n' ~ message.content ~ '<|im_end|>\\n' -}}
  {%- elif message.role == 'assistant' -%}
    {%- set parts = message.content.split('</think>') -%}
    {%- set thought = parts[0].split('<think>')[-1].strip('\\n') if parts | length > 1 else '' -%}
    {{- '<|im_start|>assistant\\n' -}}
    {%- if loop.index0 > last.query and (loop.last or thought) -%}
      {{- '<think>\\n' ~ thought ~ '\\n</think>\\n\\n' -}}
    {%- endif -%}
    {{- parts[-1].lstrip('\\n') -}}
    {%- for call in message.tool_calls or [] -%}
      {{- ('\\n' if message.content else '') ~ '<tool_call>\\n{"name": "' ~ call.function.name -}}
      {{- '", "arguments": ' ~ (call.function.arguments | tojson) ~ '}\\n</tool_call>' -}}
    {%- endfor -%}
    {{- '<|im_end|>\\n' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\\n' -}}
  {%- if enable_thinking is defined and not enable_thinking %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif -%}
{%- endif -%}
"""
"""JSON calls; a thought is the reply's own, goes once the user asks again, and is written empty into the last
turn where there was none."""


_MADE: dict[tuple[int, str], tuple[Any, Any]] = {}
"""What was made, with what it was made from: that stays alive, so that its id stays its own."""


def speaking(tokenizer: Any, template: str) -> Any:
    """A copy of the tokenizer with ``template`` as its own, and the end of turn that this writes.

    Made once for each of the session's tokenizers: it is not to be changed.
    """
    key = (id(tokenizer), template)
    if key not in _MADE:
        changed = copy.deepcopy(tokenizer)
        if "<|role_end|>" in template:
            changed.add_special_tokens({"eos_token": "<|role_end|>"})
        changed.chat_template = template
        _MADE[key] = tokenizer, changed
    return _MADE[key][1]


def gemma(tokenizer: Any) -> Any:
    """A copy of the tokenizer with Gemma's turn tokens in place of those of ChatML, and no template."""
    key = (id(tokenizer), "gemma")
    if key not in _MADE:
        changed = type(tokenizer)(
            tokenizer_object=without_chatml(tokenizer), bos_token="<bos>", eos_token="<end_of_turn>"
        )
        changed.add_special_tokens({"additional_special_tokens": ["<start_of_turn>"]})
        _MADE[key] = tokenizer, changed
    return _MADE[key][1]


def without_chatml(tokenizer: Any) -> Any:
    """The tokenizer's backend without the tokens <|im_start|> and <|im_end|>."""
    import json

    from tokenizers import Tokenizer

    raw = json.loads(tokenizer.backend_tokenizer.to_str())
    raw["added_tokens"] = [t for t in raw["added_tokens"] if "im_" not in t["content"]]
    raw["model"]["vocab"] = {
        name.replace("im_start", "was_start").replace("im_end", "was_end"): i
        for name, i in raw["model"]["vocab"].items()
    }
    return Tokenizer.from_str(json.dumps(raw))
