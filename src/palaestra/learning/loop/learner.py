"""The learner: turns credited rows into the next version of the resident policy.

It trains the very tensors that the engine samples from, and reads log-probabilities at
the temperature of the sampler. It stays within a memory budget (see `memory_budget`), and tries
its longest row before the first step. On demand it trains a critic on the policy's trunk, and
has a reference policy: a frozen copy of the trained weights, or the base without its adapters.
Other processes may share the work (see `leading`): results stay the same up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from palaestra.core.errors import InputError, RankLost
from palaestra.learning.compute.cooperative import run_to_end
from palaestra.learning.compute.divergences import token_divergences
from palaestra.learning.compute.heap import keep_freed_memory
from palaestra.learning.compute.logprobs import token_logprobs
from palaestra.learning.compute.master_weights import Optimisation, Parts
from palaestra.learning.compute.memory_budget import MemoryBudget, out_of_memory
from palaestra.learning.compute.packing import Micro, Trained, check_sampled, per_row
from palaestra.learning.compute.passes import Outputs, Wanted
from palaestra.learning.compute.shards import Sharding
from palaestra.learning.compute.weight_selection import Selection
from palaestra.learning.critics.privileged_head import Prediction, PrivilegedLoss
from palaestra.learning.critics.value_head import (
    AttachedCritic,
    Critic,
    Regression,
    ValueHead,
    ValueUpdate,
    end_values,
    row_values,
)
from palaestra.learning.loop.leading import Leader
from palaestra.learning.loop.shared_work import SharedWork
from palaestra.learning.loop.trained_state import REFERENCE, TrainedState
from palaestra.learning.loop.update_metrics import StepSums, Update
from palaestra.learning.losses.gradient_conflicts import Families, by_family
from palaestra.learning.losses.kl import Divergence
from palaestra.learning.losses.trained_tokens import TokenLoss, Tokens
from palaestra.learning.methods.checks import check_gradient, check_tokens
from palaestra.learning.methods.component import Kind, name_of
from palaestra.models.local.resident import ResidentModel
from palaestra.models.local.rounding import round_into

__all__ = ["EntropyTerm", "Learner", "Reference", "Update"]

Reference = Literal["start", "base"]
"""A reference policy: the policy when its learner began, or the network without adapters."""

EntropyTerm = Callable[[Tensor, Tokens, Tensor], Tensor]
"""(entropy [M] in nats, with gradient; the tokens; their weights [M]) -> scalar of the loss."""


class Learner:
    """Trainer of one resident model; owns its optimiser."""

    def __init__(
        self,
        model: ResidentModel,
        selection: Selection,
        optimisation: Optimisation,
        *,
        temperature: float = 1.0,
        critic: Critic | None = None,
        reference: Reference | None = None,
        sharding: Sharding | None = None,
        families: int = 0,
        privileged: PrivilegedLoss | None = None,
    ) -> None:
        """Train the selected weights of `model`.

        Args:
            model: acts and learns with the same weights.
            selection: which of its weights are trained.
            optimisation: settings of the optimiser.
            temperature: at which the sampler samples; log-probabilities are taken there too.
            critic: adds a value head to the policy; None trains no values.
            privileged: adds a head that predicts privileged numbers of states; None: there is none.
            families: most task families whose gradients `updating` keeps apart.
            reference: of `reference`: "start" copies the trained weights as they are now, "base"
                takes no memory and needs adapters; None: there is none.
            sharding: the ranks, this process among them, that divide gradients and the optimiser's
                state, see `ShardedOptimiser`; None: each has all of them.

        Raises:
            InputError: not even the optimiser fits into the memory that learning may take, or there
                are no adapters to leave out for the reference.
        """
        self.model, self.optimisation, self.temperature = model, optimisation, temperature
        self.parameters, self.frozen = selection.parameters, selection.frozen_layers
        self.adapters = selection.adapters
        self.budget = MemoryBudget(
            model.network,
            self.parameters,
            self.frozen,
            optimisation.memory,
            reference=reference == "start",
            ranks=1 if sharding is None else sharding.ranks.world,
            whole_gradients=sharding is not None and sharding.whole,
            families=families,
        )
        if model.network.device.type == "cpu":
            keep_freed_memory()
        else:  # gradients cancel out: parts of their sums must not be rounded to bf16
            torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        self.trained = TrainedState(
            model.network,
            selection,
            optimisation,
            critic=critic,
            privileged=privileged,
            sharding=sharding,
        )
        self._optimiser = self.trained.optimiser
        self._critic, self._privileged = self.trained.critic, self.trained.privileged
        self._tried = False
        self._work = SharedWork(self)
        self._base_is_reference = reference == "base"
        if self._base_is_reference and model.network.adapters is None:
            raise InputError(
                "reference='base' needs a network with adapters, whose base does not change; use "
                "reference='start'."
            )
        if reference == "start":
            self.set_reference()

    def close(self) -> None:
        """Release the model, so that another learner can train it."""
        self._optimiser.close()

    def updating(
        self,
        rows: Sequence[Trained],
        loss: TokenLoss,
        *,
        learning_rate: float | None = None,
        entropy: EntropyTerm | None = None,
        proximal: int | None = None,
        whole_rollouts: bool = False,
        families: Families | None = None,
        divergence: Divergence | None = None,
    ) -> Generator[None, None, Update]:
        """Run one optimiser step on the weighted sum of `loss` over all trained tokens, in chunks.

        Yields after each micro-batch: the model may act then, with the weights as they were. If
        running replies must be complete before the weights change, it waits for them.

        Args:
            rows: the whole batch of the step; the loss is not divided by anything.
            loss: per token, see `losses`.
            learning_rate: of the policy, used from now on; None keeps the present one.
            entropy: a term that is added once per micro-batch, so linear in the tokens.
            proximal: the version of `lp_old`; None means the present one. The
                weights under training count as one version ahead of it.
            whole_rollouts: no micro-batch splits a rollout; for losses over whole rollouts.
            families: keep the gradients of these families of rollouts apart, and combine them.
            divergence: the loss is of each token's divergence from the reference policy, which
                reads the `teacher` of each row; no other figure has a gradient then. None: of none.

        Raises:
            InputError: there is no reference policy to diverge from, a row does not fit into
                memory, tokens have no log-probabilities, or the loss is not one finite number per
                token; the weights have not changed.
            PalaestraError: the weights no longer give finite log-probabilities.
        """
        check_sampled(rows)
        if divergence is not None and not self.trained.reference:
            raise self._no_reference()
        name, network = name_of(loss), self.model.network
        parts: Mapping[str, Sequence[Trained]] = {"": rows}
        if families is not None:
            parts = by_family(rows, families)
        micros = {
            family: [
                Micro(group, network)
                for group in self._work.groups(own, whole_rollouts=whole_rollouts)
            ]
            for family, own in parts.items()
        }
        self._fits(rows, [micro for own in micros.values() for micro in own])
        before = self.model.version if proximal is None else proximal
        while True:
            self._work.everywhere(self.trained.drop_gradients)  # of a step that failed
            sums = StepSums(self._adapters_of_roles())
            regression = self._critic.regression(rows) if self._critic else None
            prediction = Prediction(rows) if self._privileged else None
            try:
                wanted = Wanted(
                    gradient=True,
                    entropy=entropy is not None,
                    values=regression is not None,
                    privileged=prediction is not None,
                    divergence=divergence,
                )
                gradients: dict[str, Tensor] = {}
                for family, own in micros.items():
                    yield from self._add_gradients(
                        own, wanted, loss, entropy, before, sums, regression, prediction
                    )
                    if families is not None:
                        gradients[family] = self._optimiser.take_gradient()
                sums.whole.check(name)
                cosines: dict[str, float] = {}
                if families is not None:
                    flat, cosines = families.combined(gradients)
                    self._optimiser.put_gradient(flat)
                self._work.sum_gradients()
                break
            except RankLost as lost:
                self._work.replace(lost)
        with self.model.held():
            while self.model.draining:
                yield
            norms = {own: self._optimiser.norm(f".{own}") for own in sums.adapters}
            rate = self._optimiser.learning_rate if learning_rate is None else learning_rate
            norm = self._work.everywhere(self.trained.step, rate)
            self.model.updated()
        self._work.agree()
        return replace(
            sums.update(norm, norms, regression),
            gradient_cosine=cosines,
            privileged_loss=prediction.loss if prediction else None,
        )

    def _add_gradients(
        self,
        micros: Sequence[Micro],
        wanted: Wanted,
        loss: TokenLoss,
        entropy: EntropyTerm | None,
        proximal: int,
        sums: StepSums,
        regression: Regression | None,
        prediction: Prediction | None,
    ) -> Generator[None, None, None]:
        """Run all micro-batches forward and backward; add their metrics to `sums`."""
        name, current = name_of(loss), self.model.version + 1
        for one in self._work.passes(micros, wanted):
            micro, found = one.micro, (yield from one.outputs())
            tokens = micro.seen(
                found.lp, current=current, proximal=proximal, divergence=found.divergence
            )
            total = (check_tokens(Kind.LOSS, name, loss(tokens), found.lp) * micro.weight).sum()
            if entropy is not None:
                total = total + entropy(found.entropy, tokens, micro.weight)
            policy = total.detach()
            if self._critic is not None and regression is not None:
                assert found.values is not None  # wanted
                coefficient = self._critic.settings.coefficient
                total = total + coefficient * regression.add(found.values, micro)
            if self._privileged is not None and prediction is not None and len(micro.privileged_at):
                assert found.privileged is not None  # wanted
                weight = self._privileged.settings.coefficient
                total = total + weight * prediction.add(found.privileged, micro)
            check_gradient(name, total)
            one.backward(total)
            sums.add(policy, tokens, found.entropy.detach(), micro.size, micro.adapter)
            yield

    update = run_to_end(updating)

    def logprobs(self, rows: Sequence[Trained]) -> list[list[float]]:
        """Return log-probabilities of the trained tokens of each row under the present weights."""
        return self._without_gradient(rows)

    def _without_gradient(
        self, rows: Sequence[Trained], *, base: bool = False, reference: bool = False
    ) -> list[list[float]]:
        """Return log-probabilities under the present weights, or others.

        Args:
            rows: with the tokens.
            base: leave adapters out.
            reference: take the copied weights of the reference policy.
        """
        network = self.model.network

        def compute(groups: list[list[Trained]]) -> Iterator[Tensor]:
            micros = [Micro(group, network, base=base) for group in groups]
            for one in self._work.passes(micros, Wanted(base=base)):
                yield run_to_end(one.outputs)().lp

        while True:
            try:
                with torch.no_grad(), self._as_reference() if reference else nullcontext():
                    return per_row(rows, self._work.groups(rows), compute)
            except RankLost as lost:
                self._work.replace(lost)

    # ── the reference policy ─────────────────────────────────────────────────

    def set_reference(self) -> None:
        """Make the present policy the reference policy from now on."""
        self._work.everywhere(self.trained.set_reference)

    @torch.no_grad()
    def take_reference(self, weights: Mapping[str, Tensor]) -> None:
        """Make the policy with other trained weights, in any precision, the reference policy.

        Raises:
            InputError: there is no copy of the reference policy's weights.
        """
        if not self.trained.reference:
            raise self._no_reference()
        for name, tensor in self.trained.reference.items():
            round_into(tensor, weights[name].to(tensor.device))
        self._work.share({REFERENCE: self.trained.reference}, "load_reference")

    def reference(self, rows: Sequence[Trained]) -> list[list[float]]:
        """Return `logprobs` under the reference policy; the present weights stay as they are.

        Raises:
            InputError: there is none.
        """
        if self._base_is_reference:
            return self._without_gradient(rows, base=True)
        if not self.trained.reference:
            raise self._no_reference()
        return self._without_gradient(rows, reference=True)

    def _no_reference(self) -> InputError:
        return InputError(
            "The learner has no reference policy; construct it with reference='start'."
        )

    @contextmanager
    def _as_reference(self) -> Iterator[None]:
        """Make the model the reference policy within the context, by swapping tensors uncopied."""
        self._work.everywhere(self.trained.exchange)
        try:
            yield
        finally:
            self._work.everywhere(self.trained.exchange)

    # ── the critic ───────────────────────────────────────────────────────────

    def values(self, rows: Sequence[Trained]) -> list[list[float]]:
        """Return the critic's value before each trained token of each row.

        Raises:
            InputError: the learner has no critic.
        """
        head = self._with_critic().head
        return row_values(self.model.network, head, rows, self.budget.tokens)

    def end_values(self, rows: Sequence[Trained]) -> list[float]:
        """Return the critic's value after each row's last token, to bootstrap a cut-off rollout.

        Raises:
            InputError: the learner has no critic.
        """
        head = self._with_critic().head
        return end_values(self.model.network, head, rows, self.budget.tokens)

    def update_values(self, rows: Sequence[Trained]) -> ValueUpdate:
        """Run one unclipped optimiser step of the value head alone; the policy does not change.

        Raises:
            InputError: the learner has no critic, or the rows have no targets.
        """
        critic = self._with_critic()
        found = critic.update(rows, self.budget)
        self._work.share(critic.optimiser.state(), "load_critic")
        return found

    @property
    def value_head(self) -> ValueHead | None:
        """The head that reads values from the policy's trunk; None without a critic."""
        return self._critic.head if self._critic else None

    def _with_critic(self) -> AttachedCritic:
        if self._critic is None:
            raise InputError("The learner has no critic; construct it with critic=Critic(…).")
        return self._critic

    # ── stopping and resuming ────────────────────────────────────────────────

    def state(self) -> Mapping[str, Mapping[str, Tensor]]:
        """Return everything that a resumed run needs: weights, moments, critic, reference.

        Each part of a state that is divided among ranks is put together when it is read.
        """
        return self._work.state()

    def restore(self, parts: Parts) -> None:
        """Restore what `state` returned.

        Heads that the state does not hold are reset; a reference that it does not hold stays.
        """
        self.trained.load(parts)
        self.model.engine.clear()
        self._work.share(self.trained.with_own(parts))
        self._work.everywhere(self.trained.publish)

    # ── learning with other ranks ────────────────────────────────────────────

    def lead(self, leader: Leader) -> None:
        """Share the work with other ranks from now on; they take over the present state.

        Raises:
            RankLost: a rank could not make the learner, or holds other weights.
        """
        self._work.lead(leader)

    def outputs(self, micro: Micro, wanted: Wanted) -> Outputs:
        """Run a micro-batch; its figures have a gradient where one is wanted."""
        hidden = self._hidden(micro)
        if wanted.divergence is not None:
            return self._divergences(micro, hidden, wanted.divergence)
        lp, entropy = self._logprobs(hidden, micro.targets, with_gradient=wanted.entropy)
        values = self._with_critic().values(hidden) if wanted.values else None
        privileged = None
        if wanted.privileged and self._privileged is not None:
            privileged = self._privileged.predictions(hidden[micro.privileged_at])
        return Outputs(lp, entropy, values, privileged)

    def _divergences(self, micro: Micro, hidden: Tensor, direction: Divergence) -> Outputs:
        """Return how far each token's distribution is from that of the reference policy."""
        network = self.model.network

        def logits(states: Tensor) -> Tensor:
            with self._exchanged():
                return network.logits(states)

        with torch.no_grad(), self._exchanged():
            teacher = self._hidden(micro.teacher())
        divergence, lp, entropy = token_divergences(
            network, hidden, micro.targets, teacher, logits, self.temperature, direction
        )
        return Outputs(lp, entropy, divergence=divergence)

    @contextmanager
    def _exchanged(self) -> Iterator[None]:
        """Make this process's network the reference policy within the context."""
        self.trained.exchange()
        try:
            yield
        finally:
            self.trained.exchange()

    def _adapters_of_roles(self) -> dict[str, str]:
        """Return the role of each adapter, if several learn."""
        adapters = self.model.network.adapters
        if adapters is None or len(adapters.by_role) < 2:
            return {}
        return {adapter: role for role, adapter in adapters.by_role.items()}

    # ── passes through the network ───────────────────────────────────────────

    def _fits(self, rows: Sequence[Trained], micros: Sequence[Micro]) -> None:
        """Check that a step fits into memory; before the first one, try its longest row.

        Raises:
            InputError: it does not.
        """
        for micro in micros:
            self.budget.check(micro.size)
        if self._tried or not rows:
            return
        longest = Micro([max(rows, key=lambda row: len(row.tokens))], self.model.network)
        try:
            lp, _ = self._logprobs(self._hidden(longest), longest.targets, with_gradient=False)
            lp.sum().backward()
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            raise self.budget.too_long(len(longest.tokens)) from error
        finally:
            self._optimiser.drop_gradients()
        self._tried = True

    def _hidden(self, micro: Micro) -> Tensor:
        """Return the hidden states [M, width] that the trained tokens are predicted from."""
        recompute = self.budget.recomputes(micro.size) and torch.is_grad_enabled()
        return micro.hidden(self.frozen, recompute=recompute).index_select(0, micro.predictors)

    def _logprobs(
        self, hidden: Tensor, targets: Tensor, *, with_gradient: bool
    ) -> tuple[Tensor, Tensor]:
        """Return log-probabilities [M] and entropies [M], with gradient if asked for."""
        return token_logprobs(
            self.model.network, hidden, targets, self.temperature, entropy_gradient=with_gradient
        )
