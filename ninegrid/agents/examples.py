"""Two agents to begin from: copy one into a file of yours and name it in ``task.agent``."""

from __future__ import annotations

from typing import Any

from ninegrid.agents.task import AgentExample
from ninegrid.tasks.protocol import Judgement


async def single_reply(client: Any, example: AgentExample) -> None:
    """Ask once, as the task itself does; the reply is judged as it stands."""
    await client.chat.completions.create(model=example.model, messages=example.messages, tools=example.tools)


async def second_chance(client: Any, example: AgentExample) -> Judgement:
    """Answer a call that cannot stand with what is wrong about it, and let the policy try once more."""
    messages = list(example.messages)
    for _ in range(2):
        response = await client.chat.completions.create(
            model=example.model, messages=messages, tools=example.tools
        )
        message = response.choices[0].message
        judgement = example.judge(message)
        if judgement.outcome in example.valid:
            break
        messages += [message.model_dump(exclude_none=True), *_corrections(message, judgement)]
    return judgement


def _corrections(message: Any, judgement: Judgement) -> list[dict[str, str]]:
    """What comes back: a result for every call, or a word from the user where there was none."""
    text = f"error: {judgement.outcome}; call again"
    calls = message.tool_calls or []
    results = [{"role": "tool", "tool_call_id": call.id, "content": text} for call in calls]
    return results or [{"role": "user", "content": text}]
