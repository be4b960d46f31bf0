"""SCOPE-RL's estimators on our rows: importance weights as products, and marginalised weights.

Its trajectories have one length: shorter ones are filled up with rewards of 0, and with actions on
which both policies agree. The log knows no probabilities of actions: where they are needed, they
are our model's. SCOPE-RL's package imports plotting libraries, which its estimators do not use, so
only their modules are loaded (``pip install --no-deps scope-rl pytorch-revgrad``).
"""

import importlib
import importlib.util
import sys
import types
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
import tasks

from puorl.ope.behaviour import fit_behaviour
from puorl.ope.config import OPEConfig
from puorl.ope.logged import LoggedEpisodes, draw_lanes

PRODUCTS = ("SelfNormalizedTIS", "SelfNormalizedPDIS", "SelfNormalizedDR", "DoublyRobust")
MARGINALS = (
    "StateActionMarginalIS", "StateActionMarginalSNIS", "StateActionMarginalDR",
    "StateActionMarginalSNDR", "DoubleReinforcementLearning",
)  # fmt: skip
WEIGHT_STEPS = 10_000
"""SCOPE-RL's default number of updates of the weights."""
Act = Callable[[np.ndarray], np.ndarray]


def load(name: str) -> Any:
    """Import a module of ``scope_rl.ope`` without its package."""
    place = importlib.util.find_spec("scope_rl")
    if place is None or not place.submodule_search_locations:
        raise ModuleNotFoundError("scope_rl")
    package = types.ModuleType("scope_rl.ope")
    package.__path__ = [f"{place.submodule_search_locations[0]}/ope"]
    sys.modules["scope_rl.ope"] = package
    return importlib.import_module(f"scope_rl.ope.{name}")


class Trajectories:
    """Rows of a log as trajectories of one length, and what a policy does in them."""

    def __init__(self, rows: Any, act: Act) -> None:
        self.logged = logged = LoggedEpisodes.of(rows)
        self.discrete = rows.action_codes is not None
        self.kind = "discrete" if self.discrete else "continuous"
        self.state = logged.state.astype(np.float32)
        self.choice = act(self.state)
        self.known = (logged.place >= 0).ravel()
        self.given: dict[str, Any] = {
            "step_per_trajectory": logged.place.shape[1],
            "reward": self.padded(logged.reward, 0.0),
            "gamma": tasks.GAMMA,
        }
        if self.discrete:
            one_hot = np.eye(logged.action.shape[1])
            self.given |= {
                "action": self.padded(rows.action_index, 0),
                "evaluation_policy_action_dist": self.padded(one_hot[self.choice], one_hot[0]),
                "evaluation_policy_action": self.padded(self.choice, 0),
            }
        else:
            taken = np.asarray(self.choice, np.float64)
            self.given |= {
                "action": self.padded(rows.action.astype(np.float64), 0.0),
                "evaluation_policy_action": self.padded(taken, 0.0),
                "bandwidth": 0.3,
            }

    def padded(self, values: np.ndarray, fill: Any) -> np.ndarray:
        """Arrange values of rows by trajectory and step."""
        known = self.known.reshape((-1,) + (1,) * (values.ndim - 1))
        return np.where(known, values[self.logged.place.ravel()], np.asarray(fill, values.dtype))


def estimates(module: Any, names: tuple[str, ...], given: dict[str, Any]) -> dict[str, Any]:
    """Return what estimators say, where it is a finite number."""
    found = {}
    for name in names:
        try:
            value = float(getattr(module, name)().estimate_policy_value(**given))
        except ValueError as problem:
            print(f"scope_rl {name}: {problem}", flush=True)
            continue
        if np.isfinite(value):
            found[f"scope_{name}"] = {"value": value}
    return found


def by_products(rows: Any, act: Act, q: Any, values: dict[str, Any], *, seed: int) -> str:
    """Add estimates with products of weights to the values; return the version, or why none.

    The critic ``q(state, action)`` is d3rlpy's.
    """
    if importlib.util.find_spec("scope_rl") is None:
        return "not installed"
    made = Trajectories(rows, act)
    logged, state, choice = made.logged, made.state, made.choice
    drawn = draw_lanes(logged.num_episodes, 5, seed)
    behaviour = fit_behaviour(logged, drawn, OPEConfig(), seed=seed)
    if made.discrete:
        density = np.exp(behaviour.log_density(logged.action)).clip(1e-6, 1)
        codes = range(logged.action.shape[1])
        worth = [q(state, np.full(len(state), code)) for code in codes]
    else:
        mean, log_scale = np.split(behaviour.output, 2, axis=1)
        z = (logged.action - mean) / np.exp(log_scale)
        density = (np.exp(-0.5 * z**2 - log_scale) / np.sqrt(2 * np.pi)).clip(1e-6, None)
        worth = [q(state, rows.action.astype(np.float32)), q(state, choice)]
    given = made.given | {
        "pscore": made.padded(density, 1.0),
        "state_action_value_prediction": made.padded(np.stack(worth, axis=1), 0.0),
    }
    values |= estimates(load(f"{made.kind}.basic_estimators"), PRODUCTS, given)
    return version("scope-rl")


def by_marginals(rows: Any, act: Act, *, seed: int) -> dict[str, Any]:
    """Estimate by learnt marginal weights (BestDICE, SCOPE-RL's default) and their own critic.

    States are standardised, and one more column says that the episode is over: SCOPE-RL's weights
    know no ends. Rewards have deviation 1 while the weights are learnt.
    """
    import torch

    torch.set_num_threads(1)
    made = Trajectories(rows, act)
    logged, given = made.logged, made.given
    over = np.append(np.zeros(logged.obs.shape[1]), 1.0)
    state = made.padded(np.column_stack([logged.obs, np.zeros(len(logged.obs))]), over)
    functions = load("weight_value_learning.function")
    learning = load(f"weight_value_learning.augmented_lagrangian_learning_{made.kind}")
    number, device = logged.action.shape[1], {"device": "cpu"}
    torch.manual_seed(seed)
    if made.discrete:
        sizes = {"n_actions": number, "state_dim": state.shape[1], **device}
        q_function = functions.DiscreteQFunction(**sizes)
        w_function = functions.DiscreteStateActionWeightFunction(
            **sizes, enable_gradient_reversal=True
        )
        learner = learning.DiscreteDiceStateActionWightValueLearning
    else:
        sizes = {"action_dim": number, "state_dim": state.shape[1]}
        q_function = functions.ContinuousQFunction(**sizes)
        w_function = functions.ContinuousStateActionWeightFunction(
            **sizes, enable_gradient_reversal=True
        )
        learner = learning.ContinuousDiceStateActionWightValueLearning
    unit = float(logged.reward.std()) or 1.0
    fitted = learner(q_function=q_function, w_function=w_function, gamma=tasks.GAMMA, **device)
    fitted.fit(**given | {"state": state, "reward": given["reward"] / unit},
               n_steps=WEIGHT_STEPS, n_steps_per_epoch=WEIGHT_STEPS, random_state=seed)  # fmt: skip
    if made.discrete:
        worth = fitted.predict_q_function_for_all_actions(state)
        own = (worth * given["evaluation_policy_action_dist"]).sum(axis=1)
    else:
        actions = given["action"], given["evaluation_policy_action"]
        worth = np.stack([fitted.predict_q_function(state, each) for each in actions], axis=1)
        own = worth[:, 1]
    length = given["step_per_trajectory"]
    given = given | {
        "n_step_pdis": 0,
        "pscore": np.ones(given["action"].shape),
        "state_action_marginal_importance_weight": fitted.predict_weight(state, given["action"]),
        "state_action_value_prediction": unit * worth,
        "initial_state_value_prediction": unit * own.reshape(-1, length)[:, 0],
    }
    module = load(f"{made.kind}.marginal_estimators")
    return {
        "values": estimates(module, MARGINALS, given),
        "settings": {"method": "best_dice", "n_steps": WEIGHT_STEPS},
        "scope_rl": version("scope-rl"),
    }
