"""Importance sampling over episodes, as functions of arrays.

Arrays are (e, t): episodes by steps. After an episode's end rewards are 0 and log ratios are 0, so
that its weight stays what it was. ``count`` (b, e) says how often each draw of a bootstrap has an
episode; one row of ones is the sample itself. All estimators but the unweighted one divide by the
sum of the weights instead of the number of episodes: some bias for much less variance.
"""

import numpy as np

_LARGEST = 500.0
"""Bound of cumulative log ratios: their exponentials stay finite in float64."""


def log_weights(log_ratio: np.ndarray) -> np.ndarray:
    """(e, t) float64. Log of the product of all ratios up to each step."""
    return np.clip(np.cumsum(log_ratio, axis=1), -_LARGEST, _LARGEST)


def discounted(reward: np.ndarray, gamma: float) -> np.ndarray:
    """(e,) float64. Discounted return of each episode."""
    return reward @ gamma ** np.arange(reward.shape[1])


def trajectory_wise(
    log_ratio: np.ndarray, reward: np.ndarray, gamma: float, count: np.ndarray
) -> np.ndarray:
    """(b,) float64. Weighted importance sampling: one weight for a whole episode.

    Precup, Sutton and Singh 2000, "Eligibility Traces for Off-Policy Policy Evaluation".
    """
    weight = _stable(log_weights(log_ratio)[:, -1:])[:, 0]
    return _divided(count @ (weight * discounted(reward, gamma)), count @ weight)


def per_decision(
    log_ratio: np.ndarray,
    reward: np.ndarray,
    gamma: float,
    count: np.ndarray,
    *,
    weighted: bool = True,
) -> np.ndarray:
    """(b,) float64. Per-decision importance sampling: a reward has the weight of the steps before.

    Args:
        log_ratio: (e, t). Log of the policy's density over the behaviour's.
        reward: (e, t).
        gamma: Discount of a step.
        count: (b, e).
        weighted: Divide by the sum of the weights of the step; else the estimate is unbiased where
            the ratios are exact, and may vary without bound.
    """
    log = log_weights(log_ratio)
    weight = _stable(log) if weighted else np.exp(log)
    total = (
        count @ weight
        if weighted
        else np.repeat(count.sum(axis=1), log.shape[1]).reshape(len(count), -1)
    )
    return _divided(count @ (weight * reward), total) @ gamma ** np.arange(reward.shape[1])


def doubly_robust(
    log_ratio: np.ndarray,
    reward: np.ndarray,
    q: np.ndarray,
    v: np.ndarray,
    next_v: np.ndarray,
    gamma: float,
    count: np.ndarray,
) -> np.ndarray:
    """(b,) float64. Weighted doubly robust: the critic's value, corrected by weighted TD errors.

    Thomas and Brunskill 2016, "Data-Efficient Off-Policy Policy Evaluation for Reinforcement
    Learning", section 5.

    Args:
        log_ratio: (e, t). As in `per_decision`.
        reward: (e, t).
        q: (e, t). Value of the logged action, 0 after the end.
        v: (e, t). Value of the policy's action in the same state, 0 after the end.
        next_v: (e, t). The same of the next state; 0 where the task ended and after the end.
        gamma: Discount of a step.
        count: (b, e).
    """
    weight = _stable(log_weights(log_ratio))
    error = reward + gamma * next_v - q
    correction = _divided(count @ (weight * error), count @ weight)
    start = (count @ v[:, 0]) / count.sum(axis=1)
    return start + correction @ gamma ** np.arange(reward.shape[1])


def effective_size(log_ratio: np.ndarray, reward: np.ndarray, gamma: float) -> float:
    """Kish's number of episodes that carry the estimate, averaged over the steps that matter.

    A step counts by its discount and by how many episodes reach it with a reward.
    """
    weight = _stable(log_weights(log_ratio))
    size = np.square(weight.sum(axis=0)) / np.square(weight).sum(axis=0)
    share = gamma ** np.arange(reward.shape[1]) * (reward != 0.0).mean(axis=0)
    return float(size @ share / share.sum()) if share.sum() > 0 else float(size[-1])


def _stable(log: np.ndarray) -> np.ndarray:
    """Return weights whose largest is 1 at every step; their ratios are what counts."""
    return np.exp(log - log.max(axis=0))


def _divided(total: np.ndarray, weight: np.ndarray) -> np.ndarray:
    # A draw of a bootstrap may miss every episode that has a weight.
    return np.divide(total, weight, out=np.full(total.shape, np.nan), where=weight > 0)
