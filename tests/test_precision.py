"""The warning about log-probs that sampling and scoring do not agree on: when, what of, and once."""

from dataclasses import replace

import pytest
import torch
from transformers import AutoConfig

from ninegrid.gspo.precision import LIMITS, has_router, limit_of, warn_beyond
from tests.test_trainer import SETTINGS, agent, examples, published, train

__all__ = ["agent", "examples", "published"]  # fixtures


def rows(*differences):
    return [{"step": i, "train/logprob_diff": value} for i, value in enumerate(differences, 1)]


def warned(capsys, differences, **named):
    """What is said step by step."""
    said = []
    for count in range(1, len(differences) + 1):
        warn_beyond(rows(*differences[:count]), 0.1, **{"experts": False, **named})
        said.append(capsys.readouterr().err)
    return said


def test_it_is_said_at_the_first_step_beyond_the_limit_alone(capsys):
    # The third step is the first beyond 0.1; one without an update has no figure.
    said = warned(capsys, [0.05, None, 0.25, 0.3, 0.01, 0.4])
    assert [bool(text) for text in said] == [False, False, True, False, False, False]
    assert "at step 3" in said[2] and "0.25" in said[2] and "limit is 0.1" in said[2]
    assert "train.max_logprob_diff" in said[2] and "router" not in said[2]


def test_a_router_is_among_the_causes_where_there_is_one(capsys):
    assert "router" in warned(capsys, [0.2], experts=True)[0]
    assert has_router(AutoConfig.for_model("bailing_hybrid"))
    assert not has_router(AutoConfig.for_model("llama"))


def test_the_limit_is_the_stated_one_or_the_number_formats():
    assert limit_of(0.02, torch.bfloat16) == 0.02
    assert limit_of(0.0, torch.float32) == 0.0
    assert limit_of(None, torch.float32) == 0.001
    assert limit_of(None, torch.bfloat16) == LIMITS[torch.bfloat16] > LIMITS[torch.float16]


@pytest.mark.parametrize(("limit", "said"), [(None, 0), (0.0, 1)])
def test_a_training_says_it_once_and_goes_on(agent, published, examples, tmp_path, capsys, limit, said):
    """Float32 stays within its own limit; rounding is beyond a limit of 0."""
    found = train(agent, published, examples, replace(SETTINGS, steps=3, max_logprob_diff=limit), tmp_path)
    assert len(found) == 3
    assert max(row["train/logprob_diff"] for row in found) > 0
    assert capsys.readouterr().err.count("warning") == said
