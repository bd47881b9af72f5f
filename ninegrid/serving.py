"""``python -m ninegrid.serving [--port N]``: the trained policy behind an OpenAI-compatible address.

It finds the policy and hands over to ``transformers serve``; what is answered there, and how errors look, is
that server's.  ``--request`` prints a request as the task makes it, for any such server.  Training does not
pass here: `ninegrid.agents` has an endpoint of its own, over the engine.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from ninegrid.app import read_sections, share_cores
from ninegrid.chat.format import ChatFormat, ChatSettings
from ninegrid.config import TaskSettings
from ninegrid.errors import DataError, NinegridError
from ninegrid.params import read_params
from ninegrid.paths import PathSettings
from ninegrid.policy.files import find_problem
from ninegrid.policy.needs import read_needs
from ninegrid.ports import HOST, require_free
from ninegrid.project import project_root
from ninegrid.tasks.loading import load_task
from ninegrid.tasks.protocol import Json
from ninegrid.tree.settings import DecodingSettings

WELCOME = """\
Serving {policy} at {url} (Ctrl-C ends it), from when "Uvicorn running" is printed.
Replies are sampled as in training; temperature 0 makes them greedy.  A request in the task's own words, from
another terminal:

  python -m ninegrid.serving --request > request.json
  curl {url}/chat/completions -H 'Content-Type: application/json' -d @request.json

or in Python:

  client = openai.OpenAI(base_url="{url}", api_key="none")
  reply = client.chat.completions.create(**json.load(open("request.json")))
"""


@dataclass(frozen=True)
class _Sections:
    task: TaskSettings
    chat: ChatSettings
    decoding: DecodingSettings
    paths: PathSettings


def main() -> None:
    """Serve the policy that ``params.yaml`` names, or print a request for it."""
    parser = argparse.ArgumentParser(prog="python -m ninegrid.serving", description="Serve the policy.")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--policy", help="folder of another policy than the one that params.yaml names")
    parser.add_argument("--request", action="store_true", help="print a request that shows one example")
    arguments = parser.parse_args()
    try:
        sections: _Sections = read_sections(_Sections, read_params())
        if arguments.policy is not None:
            sections = replace(sections, paths=replace(sections.paths, policy=arguments.policy))
        _check_policy(sections.paths.policy, sections.paths.folder("policy"))
        if arguments.request:
            print(json.dumps(request(sections), indent=1, ensure_ascii=False))
            return
        require_free(arguments.port, f"make serve PORT={8001 if arguments.port == 8000 else 8000}")
    except NinegridError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from error
    policy = sections.paths.policy
    print(WELCOME.format(policy=policy, url=f"http://{HOST}:{arguments.port}/v1"), flush=True)
    _become_server(policy, arguments.port)


def request(sections: _Sections) -> Json:
    """A chat completion's body that asks about one example as training and retest do."""
    from ninegrid.policy.loading import load_tokenizer  # torch, of which a server that is refused has no need

    task = load_task(sections.task)
    chat = ChatFormat(load_tokenizer(sections.paths.folder("policy")), sections.chat, task)
    return {
        "model": sections.paths.policy,
        "messages": chat.messages(task.generate(1, seed=0)[0]),
        "tools": list(task.tools),
        "max_tokens": sections.decoding.max_new_tokens,
    }


def _check_policy(name: str, folder: Path) -> None:
    needs = read_needs(folder)
    if needs is not None and needs.adapter:
        raise DataError(
            f"{name} holds an adapter; servers want a whole model",
            hint=f"python -m ninegrid.merge {name} data/merged && "
            "python -m ninegrid.serving --policy data/merged",
        )
    problem = find_problem(folder)
    if problem is not None:
        raise DataError(f"no policy to serve: {problem}", hint="make repro")


def _become_server(policy: str, port: int) -> NoReturn:
    # Nothing that the server looks up may be looked up on the hub.
    os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1")
    share_cores()
    os.chdir(project_root())  # clients name the model as the settings do, not by a path of this machine
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", policy]
    os.execv(sys.executable, [*command, "--host", HOST, "--port", str(port)])


if __name__ == "__main__":
    main()
