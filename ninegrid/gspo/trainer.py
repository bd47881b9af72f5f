"""The training loop: sample, reward, compare, update, look, remember."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ninegrid.errors import SettingsError
from ninegrid.gspo.batch import RolloutBatch, boards_of_round, choose_groups, join, make_batch
from ninegrid.gspo.checkpoint import Checkpoints, State
from ninegrid.gspo.control import Shuffle
from ninegrid.gspo.exploration import EntropyBonus
from ninegrid.gspo.health import Row, health_row
from ninegrid.gspo.optimizer import make_optimizer, set_learning_rate
from ninegrid.gspo.precision import has_router, limit_of, warn_beyond
from ninegrid.gspo.settings import TrainSettings, entropy_bonus, learning_rate
from ninegrid.gspo.update import Updater
from ninegrid.policy.loading import Policy
from ninegrid.policy.sampler import Sampler
from ninegrid.progress import Progress, say
from ninegrid.reward import RewardTable
from ninegrid.tasks.protocol import Example
from ninegrid.tracking.usage import Stopwatch, peak_memory

Costs = dict[str, float]
"""What a step took, in seconds and GB; named for MLflow."""


class Trainer:
    """Trains a policy in place.

    Args:
        policy: whose weights are changed.
        sampler: draws judged rollouts from that same policy.
        table: the reward in force.
        settings: of the training.
        checkpoints: where a killed run goes on.
    """

    def __init__(
        self,
        policy: Policy,
        sampler: Sampler,
        table: RewardTable,
        settings: TrainSettings,
        checkpoints: Checkpoints,
    ) -> None:
        self._policy, self._sampler, self._table = policy, sampler, table
        self._settings, self._checkpoints = settings, checkpoints
        self._weights = {n: p for n, p in policy.model.named_parameters() if p.requires_grad}
        self._optimizer = make_optimizer(self._weights.values(), settings)
        self._updater = Updater(policy.model, sampler.engine, self._optimizer, settings, sampler.decoding)
        self._valid = next(iter(sampler.task.milestones.values()))
        self._rounds = 0

    def run(self, examples: Sequence[Example], on_step: Callable[[Row, Costs], None]) -> list[Row]:
        """Train on ``examples`` and return a row for each step.

        Args:
            examples: the training boards.
            on_step: called with every row and what the step cost; with the rows of a resumed run's
                earlier steps too, whose cost is not known.

        Raises:
            SettingsError: there are fewer boards than a batch takes.
            TrainingError: a figure that training would learn from is not finite.
        """
        if len(examples) < self._settings.n_boards:
            raise SettingsError(
                f"train.n_boards = {self._settings.n_boards}, but there are {len(examples)} boards"
            )
        self._announce()
        rows = self._resume()
        for row in rows:
            on_step(row, {})
        progress = Progress("train_gspo: step", self._settings.steps, done=len(rows))
        while len(rows) < self._settings.steps:
            row, costs = self._step(examples, rows)
            rows.append(row)
            self._check_precision(rows)
            on_step(row, costs)
            self._remember(rows)
            progress.advance(self._detail(rows[-1]))
        return rows

    def _step(self, examples: Sequence[Example], rows: Sequence[Row]) -> tuple[Row, Costs]:
        settings, step, watch = self._settings, len(rows), Stopwatch()
        bonus = entropy_bonus(settings, step, _steered_from(rows))
        sampled = self._collect(examples, EntropyBonus(bonus, self._valid))
        costs = {"time/rollout_seconds": watch.lap()}
        rate = learning_rate(settings, step)
        set_learning_rate(self._optimizer, rate)
        chosen = choose_groups(sampled, settings.n_boards)
        stats = self._updater.update(sampled.take(chosen))
        # What a step leaves behind is in the checkpoint: a resumed run must go on like one that was not cut.
        self._sampler.engine.release()
        costs |= {"time/update_seconds": watch.lap(), "time/step_seconds": watch.total(), **peak_memory()}
        return health_row(step + 1, sampled, chosen, stats, self._sampler.task, rate, bonus), costs

    def _collect(self, examples: Sequence[Example], bonus: EntropyBonus) -> RolloutBatch:
        """Sample rounds of boards until enough groups can teach something."""
        settings = self._settings
        batches: list[RolloutBatch] = []
        for _ in range(settings.rounds):
            boards = boards_of_round(examples, self._rounds, settings.n_boards, settings.seed)
            key = ("train", settings.seed, self._rounds)
            groups = [g for part in self._sampler.groups(boards, settings.n_samples, key) for g in part]
            batches.append(make_batch(groups, self._table, settings, bonus=bonus, shuffle=self._shuffle()))
            self._rounds += 1
            if sum(batch.informative.sum() for batch in batches) >= settings.n_boards:
                break
        return join(batches)

    def _shuffle(self) -> Shuffle | None:
        settings = self._settings
        if settings.control == "none":
            return None
        return Shuffle(settings.control, self._valid, (settings.seed, self._rounds))

    def _announce(self) -> None:
        settings, engine = self._settings, self._sampler.engine
        say(
            f"train_gspo: {settings.steps} steps of {settings.n_boards} boards x "
            f"{settings.n_samples} samples, {settings.algorithm} with {settings.credit} credit, "
            f"{engine.name} engine, {settings.optimizer}, learning rate {settings.learning_rate:g}"
        )
        if settings.updates == 1:
            say("train_gspo: one update per rollout batch, so the ratio is 1 and clipping cannot act")

    def _resume(self) -> list[Row]:
        state = self._checkpoints.load()
        if state is None:
            self._sampler.engine.load([])  # guesses shape the passes: every run begins without any
            self._rounds = 0
            return []
        with torch.no_grad():
            for name, weight in self._weights.items():
                weight.copy_(state.model[name])
        self._optimizer.load_state_dict(state.optimizer)
        self._sampler.engine.load(state.engine)
        self._rounds = state.rounds
        say(f"train_gspo: resuming after step {state.step} from {self._checkpoints.folder}")
        return list(state.rows)

    def _remember(self, rows: list[Row]) -> None:
        every = self._settings.checkpoint_every
        if every and len(rows) % every == 0:
            model = {name: weight.detach() for name, weight in self._weights.items()}
            optimizer = self._optimizer.state_dict()
            engine = self._sampler.engine.state()
            self._checkpoints.save(State(len(rows), self._rounds, model, optimizer, engine, rows))

    def _check_precision(self, rows: Sequence[Row]) -> None:
        limit = limit_of(self._settings.max_logprob_diff, self._policy.dtype)
        warn_beyond(rows, limit, experts=has_router(self._policy.model.config))

    def _detail(self, row: Row) -> str:
        milestone = next(iter(self._sampler.task.milestones))
        legal = row[f"rollout/milestone/{milestone}"]
        parts = [f"reward {row['rollout/rewards_mean']:+.3f}", f"{milestone} {legal:.0%}"]
        parts.append(f"informative {row['train/informative_groups']:.0%}")
        entropy = row["rollout/decision_entropy"]
        return "  ".join(parts if entropy is None else [*parts, f"decision entropy {entropy:.2f}"])


def _steered_from(rows: Sequence[Row]) -> tuple[float, float] | None:
    """The last step's entropy bonus and entropy of the decision."""
    if not rows:
        return None
    bonus, entropy = rows[-1]["train/entropy_bonus"], rows[-1]["rollout/decision_entropy"]
    return None if bonus is None or entropy is None else (bonus, entropy)
