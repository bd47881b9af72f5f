"""Losses and gradients against those of TRL's own trainers, on the same random off-policy batch.

TRL computes them from log-probs that it is handed in place of its model's.  It has no GSPO-token
with an advantage for each token, and no bound below CISPO's weight.
"""

from dataclasses import dataclass

import pytest
import torch

from ninegrid.gspo.algorithms.names import FACTS
from ninegrid.gspo.algorithms.objective import ClipRange, Totals
from ninegrid.gspo.algorithms.registry import objective_of

IN_TRL = {
    "gspo": {"loss_type": "grpo", "importance_sampling_level": "sequence"},
    "gspo_token": {"loss_type": "grpo", "importance_sampling_level": "sequence"},  # one advantage a reply
    "grpo": {"loss_type": "grpo"},
    "dr_grpo": {"loss_type": "dr_grpo"},
    "dapo": {"loss_type": "dapo"},
    "cispo": {"loss_type": "cispo"},
    "rloo": {},
}
CLIPS = {name: ClipRange(0.1, 0.15) for name in IN_TRL}
CLIPS["cispo"] = ClipRange(1.0, 0.15)  # no bound below, as in TRL
PER_TOKEN = [name for name in IN_TRL if FACTS[name].per_token and name != "gspo_token"]
MAX_TOKENS = 9


@dataclass(frozen=True)
class Batch:
    """Six replies of different lengths; masked slots hold numbers, since TRL multiplies by the mask."""

    new_ST: torch.Tensor
    old_ST: torch.Tensor
    mask_ST: torch.Tensor
    advantage_ST: torch.Tensor

    @property
    def totals(self) -> Totals:
        return Totals(len(self.mask_ST), int(self.mask_ST.sum()), MAX_TOKENS)

    def rows(self, first: int, last: int) -> "Batch":
        parts = (self.new_ST, self.old_ST, self.mask_ST, self.advantage_ST)
        return Batch(*(part[first:last] for part in parts))


def draw(seed, *, per_token):
    random = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    new = -normal(6, 7).abs()
    old = new + 0.3 * normal(6, 1) + 0.2 * normal(6, 7)
    mask = torch.arange(7) < torch.tensor([1, 7, 4, 5, 2, 7])[:, None]
    return Batch(new, old, mask.double(), normal(6, 7 if per_token else 1))


def trainer(name, folder, pieces):
    """TRL's trainer for the algorithm, its clip range and the gradient accumulation, on a random model."""
    from datasets import Dataset
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

    config_class, trainer_class = (RLOOConfig, RLOOTrainer) if name == "rloo" else (GRPOConfig, GRPOTrainer)
    clip = CLIPS[name]
    arguments = config_class(
        output_dir=str(folder),
        report_to="none",
        save_strategy="no",
        use_cpu=True,
        bf16=False,
        beta=0.0,  # no KL
        epsilon=clip.low,
        # TRL's bound of CISPO's weight is the ratio itself, not its distance from 1.
        epsilon_high=1 + clip.high if name == "cispo" else clip.high,
        max_completion_length=MAX_TOKENS,
        per_device_train_batch_size=6 // pieces,
        gradient_accumulation_steps=pieces,
        num_generations=3,
        **IN_TRL[name],
    )
    vocabulary = Tokenizer(WordLevel({"<pad>": 0, "<eos>": 1, "a": 2}, unk_token="a"))
    sizes = {"vocab_size": 3, "hidden_size": 4, "intermediate_size": 4}
    layers = {"num_hidden_layers": 1, "num_attention_heads": 1}
    made = trainer_class(
        model=LlamaForCausalLM(LlamaConfig(**sizes, **layers)),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=arguments,
        train_dataset=Dataset.from_dict({"prompt": ["a"] * 6}),
        processing_class=PreTrainedTokenizerFast(
            tokenizer_object=vocabulary, pad_token="<pad>", eos_token="<eos>"
        ),
    )
    made.model.train()
    made.current_gradient_accumulation_steps = pieces  # which its training loop would set
    return made


def trl_loss(trainer, batch, totals):
    """TRL's loss of a batch, with a gradient for ``batch.new_ST``."""
    ids = torch.ones(batch.mask_ST.shape, dtype=torch.long)
    advantage = batch.advantage_ST
    inputs = {
        "prompt_ids": ids[:, :1],
        "prompt_mask": ids[:, :1],
        "completion_ids": ids,
        "completion_mask": batch.mask_ST.long(),
        "advantages": advantage.squeeze(1) if advantage.shape[1] == 1 else advantage,
        "old_per_token_logps": batch.old_ST,
        "old_logps": (batch.old_ST * batch.mask_ST).sum(1),  # RLOO's
        "num_items_in_batch": torch.tensor(totals.tokens),
    }
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (
        batch.new_ST,
        torch.zeros_like(batch.new_ST),  # entropies, only logged
        None,
    )
    return trainer._compute_loss(trainer.model, inputs)


def assert_same(name, folder, batch, pieces):
    """Our loss of the whole batch is TRL's, summed over ``pieces`` of it; so is the gradient."""
    ours = objective_of(name)(
        batch.new_ST.requires_grad_(),
        batch.old_ST,
        batch.mask_ST,
        batch.advantage_ST,
        CLIPS[name],
        batch.totals,
    )
    (our_grad,) = torch.autograd.grad(ours.loss, batch.new_ST)
    reference = trainer(name, folder, pieces)
    size = 6 // pieces
    parts = [batch.rows(i * size, (i + 1) * size) for i in range(pieces)]
    theirs = sum(trl_loss(reference, part, batch.totals) for part in parts)
    (their_grad,) = torch.autograd.grad(theirs, batch.new_ST)

    assert ours.clipped_U.any() and not ours.clipped_U.all()
    torch.testing.assert_close(ours.loss, theirs, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(our_grad, their_grad, rtol=1e-9, atol=1e-12)
    return ours, reference


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", IN_TRL)
def test_one_advantage_for_each_reply(name, seed, tmp_path):
    ours, reference = assert_same(name, tmp_path, draw(seed, per_token=False), pieces=1)
    if name not in {"cispo", "gspo_token"}:  # TRL counts only CISPO's positive advantages; GSPO's replies
        (share,) = reference._metrics["train"]["clip_ratio/region_mean"]
        assert ours.clipped_U.double().mean().item() == pytest.approx(share, rel=1e-6)


@pytest.mark.parametrize("name", PER_TOKEN)
def test_one_advantage_for_each_token(name, tmp_path):
    assert_same(name, tmp_path, draw(3, per_token=True), pieces=1)


@pytest.mark.parametrize("name", [name for name in IN_TRL if name != "rloo"])
def test_a_batch_that_trl_accumulates_over_two_passes(name, tmp_path):
    # RLOOTrainer leaves the division to transformers' training loop, which does not run here.
    assert_same(name, tmp_path, draw(4, per_token=False), pieces=2)
