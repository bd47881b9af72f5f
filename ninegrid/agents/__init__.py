"""Agent functions: a user's own code asks, through an OpenAI client, and the trainer's policy answers.

``task`` (what is asked for) imports no torch and no server; ``sampler`` does.
"""

from ninegrid.agents.task import AgentExample, AgentTask

__all__ = ["AgentExample", "AgentTask"]
