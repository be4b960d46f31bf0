"""`puorl.ope.evaluate`: from policies and held-out labelled episodes to values."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from puorl.core.errors import ConfigError, DataError
from puorl.core.formatting import check_choice
from puorl.core.hashing import checked_seed, generator
from puorl.core.progress import progress_bar, quiet
from puorl.core.stats import Estimate, student_t
from puorl.core.tasks import Workers, call_all
from puorl.data.dataset import Dataset
from puorl.data.validate import listed
from puorl.ope import importance
from puorl.ope.behaviour import Behaviour, fit_behaviour, gaussian_log_density
from puorl.ope.config import DENSITIES, ESTIMATORS, OPEConfig
from puorl.ope.fqe import Critics, fit_critics
from puorl.ope.logged import Lanes, LoggedEpisodes, draw_lanes, has_probabilities
from puorl.ope.rollout import fit_model, roll_out
from puorl.ope.values import OfflineEvaluation, Value
from puorl.rl.policy import Policy

DEFAULT = "blend"
"""The estimator that ranks policies, fixed on other tasks than those it is judged on."""
_NOISE_DRAWS = 8
_FEW_EPISODES = 10
_FAR, _SOME = 0.5, 0.2
"""Fractions of states outside the data from which estimates by networks are doubtful."""
_DRIFTS = 0.1
"""Drift of critics, relative to the interval's half width or the value, that is too much."""
_OUTSIDE = "the policy does what the log hardly ever shows"
_LEFT = "the model left the logged range of states"
_UNSETTLED = "values still moved at the end of training"
_VAGUE = "the interval is too wide (judge from more episodes)"
_FEW = "too few episodes"
"""Reasons for doubt."""
_LEAST_SPREAD = 0.1
"""Of the logged mean: where logged episodes hardly differ, this stands for their spread."""


def evaluate(
    policies: Any,
    judge: Dataset,
    *,
    gamma: float = 0.99,
    estimators: Sequence[str] | None = None,
    action_noise: float | None = None,
    seed: int = 0,
    progress: bool = False,
    engine: Workers | None = None,
    **settings: Any,
) -> OfflineEvaluation:
    """Estimate what policies are worth from logged episodes, without an environment.

    The value of a policy is its expected discounted return from the logged starts; a record that
    was cut is no end of the task.

    Which rows serve what: ``judge`` alone is used, and must be held-out labelled episodes: rows
    known to be the target's, on which no policy was trained, and which no filter has chosen. Every
    network is fitted in several lanes on draws of these episodes, and each lane leaves out one fold
    of them, so that weights and corrections of an episode come from a lane that has not seen it.

    A policy that knows the names of its columns gets those of ``judge`` in its own order; codes are
    brought into one order too.

    Args:
        policies: One policy or several by name: anything with ``act(obs)``, or a function; with
            ``probabilities(obs) -> (n, A)`` for actions that are codes.
        judge: Held-out labelled episodes with rewards.
        gamma: Discount of a step.
        estimators: Names in `ESTIMATORS`; by default all that can be computed.
        action_noise: Standard deviation of Gaussian noise on a deterministic policy's actions,
            where each action's logged range is 2: importance sampling and doubly robust estimates
            value the policy with it. Without noise such a policy has no density.
        seed: Decides all randomness.
        progress: Show a bar with the time left.
        engine: Where policies are judged, each a task; here, one after the other, by default.
        **settings: Fields of `OPEConfig` to change, e.g. ``updates=5_000``.

    Raises:
        ConfigError: Unknown estimators or settings, or densities without noise.
        DataError: Rows without rewards or episodes, or policies of another size, or with other
            columns or codes.
    """
    config = OPEConfig.of(settings)
    named, judge, moved = _aligned(_named(policies), judge)
    if not 0.0 <= gamma < 1.0:
        raise ConfigError(f"gamma: expected 0 or more and less than 1, got {gamma}")
    if action_noise is not None and not 0.0 < action_noise < math.inf:
        raise ConfigError(f"action_noise: expected a positive number, got {action_noise}")
    logged = LoggedEpisodes.of(
        judge, discrete=True if all(map(has_probabilities, named.values())) else None
    )
    chosen = _chosen(estimators, logged, action_noise)
    run = _Run(logged, config, gamma, action_noise, checked_seed(seed))
    total = config.updates * len(named) if _needs_critics(chosen) else len(named)
    with progress_bar("evaluation", total=total, unit="updates", show=progress) as advance:
        told = advance if engine is None else quiet
        if engine is not None and _needs_model(chosen):
            _ = run.model  # once, and not in every task
        judge_one = partial(run.policy, chosen=chosen, advance=told)
        found = dict(zip(named, call_all(judge_one, list(named.items()), engine), strict=True))
    return OfflineEvaluation(
        gamma=gamma,
        num_episodes=logged.num_episodes,
        num_rows=len(logged.reward),
        default=DEFAULT if DEFAULT in chosen else chosen[0],
        values={name: values for name, (values, _) in found.items()},
        behaviour=run.behaviour_value(),
        outside={name: outside for name, (_, outside) in found.items()},
        notes=(*moved, *run.notes()),
        settings={"seed": seed, "action_noise": action_noise, **dataclasses.asdict(config)},
    )


def _named(policies: Any) -> dict[str, Any]:
    if isinstance(policies, Mapping):
        named = {str(name): policy for name, policy in policies.items()}
    elif isinstance(policies, Sequence):
        named = {f"policy-{i}": policy for i, policy in enumerate(policies)}
    else:
        named = {"policy": policies}
    if not named:
        raise ConfigError("ope: expected one or more policies, got none")
    return named


def _aligned(
    named: dict[str, Any], judge: Dataset
) -> tuple[dict[str, Any], Dataset, tuple[str, ...]]:
    """Bring columns of policies and codes of the log into one order, or refuse what differs."""
    codes = judge.action_codes
    # A policy that does not name its codes has those of the log.
    given = [getattr(each, "codes", None) or codes for each in named.values()]
    own = {tuple(each) for each in given if each is not None}
    if codes is not None and own != {codes}:
        wanted = next(iter(own))
        if len(own) > 1 or set(codes) - set(wanted):
            raise DataError(
                f"action: expected the codes that the policies were trained with "
                f"({'; '.join(listed(each) for each in own)}), got {listed(codes)} in the log; "
                "leave out rows with other codes, and judge policies of other codes apart"
            )
        judge = judge.with_action_codes(wanted)
    given, made, moved = judge.provenance, {}, []
    for name, policy in named.items():
        made[name] = policy
        if isinstance(policy, Policy):
            try:
                made[name] = policy.for_columns(given.obs_names, given.action_names)
            except DataError as error:
                raise DataError(f"{name}: {error}") from error
        moved += [name] if made[name] is not policy else []
    notes = (f"columns are in another order than in training, and were sorted by name for "
             f"{listed(moved)}",) if moved else ()  # fmt: skip
    return made, judge, notes


def _chosen(
    estimators: Sequence[str] | None, logged: LoggedEpisodes, action_noise: float | None
) -> list[str]:
    has_densities = logged.discrete or action_noise is not None
    if estimators is None:
        names = [n for n in ESTIMATORS if has_densities or n not in DENSITIES]
        return [name for name in names if name != "behaviour"]
    for name in estimators:
        check_choice("estimators", name, ESTIMATORS)
        if name in DENSITIES and not has_densities:
            raise ConfigError(
                f"{name}: expected a policy with probabilities, got a deterministic one, whose "
                "actions have no density; state --action-noise (action_noise=), e.g. 0.1, to value "
                "it with noise, or use fqe or model"
            )
    asked = [name for name in ESTIMATORS if name in estimators and name != "behaviour"]
    if not asked:
        raise ConfigError(
            f"estimators: expected some among {', '.join(n for n in ESTIMATORS)}; the behaviour's "
            "own return, which is always given, judges no policy"
        )
    return asked


def _needs_critics(names: Sequence[str]) -> bool:
    return not {"blend", "fqe", "dr"}.isdisjoint(names)


def _needs_model(names: Sequence[str]) -> bool:
    return not {"blend", "model"}.isdisjoint(names)


class _Run:
    """What all policies of one evaluation share: episodes, lanes and fitted models."""

    def __init__(
        self,
        logged: LoggedEpisodes,
        config: OPEConfig,
        gamma: float,
        action_noise: float | None,
        seed: int,
    ) -> None:
        self.logged, self.config, self.gamma, self.seed = logged, config, gamma, seed
        self.noise = action_noise
        self.drawn: Lanes = draw_lanes(logged.num_episodes, config.critics, seed)
        self.behaviour: Behaviour = fit_behaviour(logged, self.drawn, config, seed=seed)
        self.reward = logged.in_steps(logged.reward)
        self.count = _bootstrap(logged.num_episodes, config.num_draws, seed)
        returns = logged.returns(gamma)
        self.spread = max(float(returns.std()), _LEAST_SPREAD * abs(float(returns.mean())))

    @cached_property
    def model(self) -> Any:
        """The fitted model of the dynamics."""
        return fit_model(self.logged, self.drawn, self.config, seed=self.seed)

    def policy(
        self, named: tuple[str, Any], chosen: Sequence[str], advance: Any
    ) -> tuple[dict[str, Value], float]:
        """Value one policy by all chosen estimators; return also how far it leaves the data."""
        (name, policy), logged = named, self.logged
        here = logged.choices(policy, logged.state.astype(np.float32), name)
        outside = self.behaviour.outside(here)
        critics, values = None, {}
        if _needs_critics(chosen):
            there = logged.choices(policy, logged.next_state.astype(np.float32), name)
            critics = fit_critics(
                logged,
                (there, here[logged.starts]),
                self.drawn,
                self.config,
                gamma=self.gamma,
                seed=self.seed,
                advance=advance,
            )
            values["fqe"] = self._by_critics(critics, outside)
            if "dr" in chosen:
                values["dr"] = self._doubly_robust(critics, here, there)
        else:
            advance(1)
        if _needs_model(chosen):
            values["model"] = self._by_model(policy, outside)
        if "blend" in chosen:
            values["blend"] = self._blended(values["fqe"], values["model"])
        for each in ("pdis", "wis"):
            if each in chosen:
                values[each] = self._by_weights(each, here)
        return {each: values[each] for each in chosen}, outside

    def behaviour_value(self) -> Value:
        """Return of the logged policy, which a new policy must beat."""
        returns, num = self.logged.returns(self.gamma), self.logged.num_episodes
        draws = self.count[1:] @ returns / num
        few = num < _FEW_EPISODES
        text = f"Measured in {num} episodes, whoever acted in them" + (
            "; too few for a dependable interval." if few else "."
        )
        doubts = (_FEW,) if few else ()
        estimate = _percentiles(returns.mean(), draws)
        return Value(estimate, float(num), few, text, tuple(draws), doubts=doubts)

    def notes(self) -> tuple[str, ...]:
        """Say what holds for all policies alike."""
        logged, found = self.logged, []
        if logged.num_episodes < _FEW_EPISODES:
            found.append(f"only {logged.num_episodes} episodes judge: every number is rough")
        length = logged.place.shape[1]
        if self.gamma**length > 0.05 and logged.is_cut.any():
            found.append(
                f"records are cut after {length} steps, where the discount is still "
                f"{self.gamma**length:.2f}: fitted Q and the model go on, the log's own return "
                "counts as if they had gone on alike, pdis and wis count what was logged"
            )
        return tuple(found)

    def _by_critics(self, critics: Critics, outside: float) -> Value:
        draws = critics.draws
        estimate = over_lanes(draws)
        half = 0.0 if estimate.interval is None else estimate.half_width
        drifts = abs(critics.drift) > max(half, _DRIFTS * abs(estimate.value))
        if drifts:
            text = (
                f"Do not trust it: after {self.config.updates:,} updates values still move by "
                f"{critics.drift:+.3g}; take more updates."
            )
            return self._value(estimate, outside, draws, (_UNSETTLED,), text)
        verdict = _support(outside, "Critics guess there")
        return self._value(estimate, outside, draws, *verdict, whose="the critics'")

    def _by_model(self, policy: Any, outside: float) -> Value:
        rolled = roll_out(self.model, self.logged, policy, gamma=self.gamma, seed=self.seed)
        estimate = over_lanes(rolled.draws)
        if rolled.outside > _SOME:
            text = (
                f"Do not trust it: in {rolled.outside:.0%} of the steps the model leaves the "
                "logged range of states, where it guesses."
            )
            return self._value(estimate, outside, rolled.draws, (_LEFT,), text)
        verdict = _support(outside, "The model guesses there")
        return self._value(estimate, outside, rolled.draws, *verdict, whose="the model's")

    def _value(
        self,
        estimate: Estimate,
        outside: float,
        draws: np.ndarray,
        doubts: tuple[str, ...],
        text: str,
        *,
        whose: str = "its",
    ) -> Value:
        size = self.logged.num_episodes * (1.0 - outside)
        vague = self._is_vague(estimate)
        if vague and not doubts:
            text = self._vague_text(estimate, whose)
        doubts += (_VAGUE,) if vague else ()
        return Value(estimate, size, bool(doubts), text, tuple(map(float, draws)), vague, doubts)

    def _blended(self, fqe: Value, model: Value) -> Value:
        """Average two estimates that err in different ways; what parts them adds to the spread."""
        draws = fqe.draws + model.draws
        estimate = over_lanes(np.array(draws))
        vague, doubts = self._is_vague(estimate), tuple(dict.fromkeys(fqe.doubts + model.doubts))
        trust = (model if model.is_doubtful and not fqe.is_doubtful else fqe).trust
        trust = self._vague_text(estimate, "its") if vague and {*doubts} <= {_VAGUE} else trust
        doubts += (_VAGUE,) if vague and _VAGUE not in doubts else ()
        both = f"Critics say {fqe.estimate.value:,.4g}, the model {model.estimate.value:,.4g}. "
        size = fqe.effective_size
        return Value(estimate, size, bool(doubts), both + trust, draws, vague, doubts)

    def _is_vague(self, estimate: Estimate) -> bool:
        return estimate.interval is not None and estimate.half_width > self.spread

    def _vague_text(self, estimate: Estimate, whose: str) -> str:
        return (
            f"Do not trust it: {whose} interval reaches {estimate.half_width:,.3g} to either side, "
            f"but returns of logged episodes differ by {self.spread:,.3g} only (standard "
            "deviation), so it says less than the log. More episodes narrow it."
        )

    def _log_ratio(self, here: np.ndarray) -> np.ndarray:
        """(e, t) float64. Log of the policy's density over the behaviour's, by step."""
        logged = self.logged
        if logged.discrete:
            own = np.log(np.maximum((here * logged.action).sum(axis=1, dtype=np.float64), 1e-12))
        else:
            assert self.noise is not None
            own = gaussian_log_density(logged.action - here, math.log(self.noise))
        return logged.in_steps(own - self.behaviour.log_density(logged.action))

    def _by_weights(self, name: str, here: np.ndarray) -> Value:
        log_ratio = self._log_ratio(here)
        estimator = importance.per_decision if name == "pdis" else importance.trajectory_wise
        value, *draws = estimator(log_ratio, self.reward, self.gamma, self.count)
        if name == "wis":
            last = np.exp(log_ratio.sum(axis=1) - log_ratio.sum(axis=1).max())
            size = float(np.square(last.sum()) / np.square(last).sum())
        else:
            size = importance.effective_size(log_ratio, self.reward, self.gamma)
        return self._weighted(value, np.array(draws), size)

    def _doubly_robust(self, critics: Critics, here: np.ndarray, there: np.ndarray) -> Value:
        logged, log_ratio = self.logged, self._log_ratio(here)
        q = self._held_out(critics.q(logged.obs, logged.action))
        v, next_v = (
            self._held_out(self._noisy_q(critics, obs, choice))
            for obs, choice in ((logged.obs, here), (logged.next_obs, there))
        )
        value, *draws = importance.doubly_robust(
            log_ratio,
            self.reward,
            logged.in_steps(q),
            logged.in_steps(v),
            logged.in_steps(np.where(logged.terminal, 0.0, next_v)),
            self.gamma,
            self.count,
        )
        size = importance.effective_size(log_ratio, self.reward, self.gamma)
        return self._weighted(value, np.array(draws), size)

    def _weighted(self, value: float, draws: np.ndarray, size: float) -> Value:
        few = size < _FEW_EPISODES
        text = (
            f"Do not trust it: it rests on {size:.1f} of {self.logged.num_episodes} episodes."
            if few
            else f"It rests on {size:.0f} of {self.logged.num_episodes} episodes."
        )
        estimate, doubts = _percentiles(value, draws), (_FEW,) if few else ()
        return Value(estimate, size, few, text, tuple(map(float, draws)), doubts=doubts)

    def _noisy_q(self, critics: Critics, obs: np.ndarray, choice: np.ndarray) -> np.ndarray:
        """Average values over the noise that gives a deterministic policy its density."""
        if self.logged.discrete or self.noise is None:
            return critics.q(obs, choice)
        rng, total = generator(self.seed, "ope", "noise"), 0.0
        for _ in range(_NOISE_DRAWS):
            noise = self.noise * rng.standard_normal(choice.shape, dtype=np.float32)
            total = total + critics.q(obs, choice + noise)
        return np.asarray(total) / _NOISE_DRAWS

    def _held_out(self, by_lane: np.ndarray) -> np.ndarray:
        """(n,) float64. What the lane that has not seen a row's episode says; else the mean."""
        fold = self.drawn.fold[self.logged.episode]
        own = by_lane[np.maximum(fold, 0), np.arange(len(fold))]
        return np.where(fold >= 0, own, by_lane.mean(axis=0))


def _support(outside: float, consequence: str) -> tuple[tuple[str, ...], str]:
    share = f"in {outside:.0%} of the states the policy does what the log hardly ever shows"
    if outside > _FAR:
        more = "only runs in which such actions are taken can tell"
        return (_OUTSIDE,), f"Do not trust it: {share}. {consequence}; {more}."
    if outside > _SOME:
        return (), f"With care: {share}. {consequence}."
    return (), f"The policy stays inside the data: {share}."


def over_lanes(draws: np.ndarray) -> Estimate:
    """Mean with an interval: the spread of lanes, each with its own episodes, is the error."""
    value = float(draws.mean())
    if len(draws) < 2:
        return Estimate(value)
    half = student_t(len(draws) - 1) * float(draws.std(ddof=1))
    return Estimate(value, value - half, value + half)


def _percentiles(value: float, draws: np.ndarray) -> Estimate:
    known = draws[np.isfinite(draws)]
    if len(known) < 2:
        return Estimate(float(value))
    low, high = np.quantile(known, (0.025, 0.975))
    return Estimate(float(value), float(low), float(high))


def _bootstrap(num_episodes: int, num_draws: int, seed: int) -> np.ndarray:
    """(1 + b, e) float64. How often each draw has an episode; the first row is the sample."""
    rng = generator(seed, "ope", "bootstrap")
    drawn = rng.multinomial(num_episodes, np.full(num_episodes, 1.0 / num_episodes), num_draws)
    return np.concatenate([np.ones((1, num_episodes)), drawn])
