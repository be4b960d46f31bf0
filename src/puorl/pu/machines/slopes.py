"""Linear models of each unit around one model of all units: what drivers hardly change.

The latents of networks take up where a driver makes the networks err. Slopes of a unit do so much
less. Nothing is trained: one regression of s' - s of all rows, with squares and products; one for
each unit of what that leaves, on states, actions and the rows before; z are the coordinates of its
coefficients in the directions in which units differ most.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from puorl.nn.mlp import Layer, Params

SIZES = (2, 3, 4)
"""Numbers of directions, each a lane."""
_FAR = 4.0
"""Standardised values count up to here."""
_MOST_PRODUCTS = 24
"""Columns at most whose squares and products enter the model of all units: of states and actions
alike, up to half each."""
_RIDGE = 3.0
"""Rows that the prior of a regression is worth."""
_DEGREES = 4.0
_NUM_ROUNDS = 3


class Rows(NamedTuple):
    """Rows of groups, as `puorl.pu.machines.dynamics.Batch` has them."""

    given: np.ndarray
    """(n, f) float32. States, actions, differences to earlier ones."""
    outcome: np.ndarray
    """(n, d) float32. Changes of the state."""
    weight: np.ndarray
    """(n, d) float32. 1 where they are known."""
    unit: np.ndarray
    """(n,) int. Group of each."""


def outputs(params: Params, given: jax.Array, z: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(n, d) each. Location and log scale of the change of the state, given z of each row."""
    common, basis, direction = params[:3]
    own = (z @ direction.w.T + direction.b[None]).reshape(len(z), basis.w.shape[1], -1)
    left = jnp.einsum("nq,nqd->nd", _affine(given) @ basis.w, own)
    location = _features(given, _multiplied(params, given)) @ common.w
    location = location + left * jnp.exp(common.b)[None]
    return location, jnp.broadcast_to(common.b[None], location.shape)


def fit(rows: Rows, num_units: int, num_present: int) -> Params:
    """Return the models of all lanes.

    Args:
        rows: Of all units.
        num_units: Units.
        num_present: Columns of ``given`` that are present states and actions, the first.
    """
    columns = choose_columns(rows.outcome.shape[1], num_present)
    x = np.asarray(_features(rows.given, columns), np.float64)
    known = np.asarray(rows.weight.all(axis=1))
    trusted = known.astype(np.float64)
    common, scale = _solve(x, rows.outcome, trusted), np.ones(rows.outcome.shape[1])
    for _ in range(_NUM_ROUNDS):
        left = rows.outcome - x @ common
        scale = np.median(np.abs(left[known]), axis=0) / 0.6745 + 1e-6
        trusted = _trust(left / scale) * known
        common = _solve(x, rows.outcome, trusted)
    left = (rows.outcome - x @ common) / scale
    seen = np.asarray(_affine(rows.given), np.float64)
    # In a basis in which columns are alike and uncorrelated all coefficients are equally sure.
    size, turn = np.linalg.eigh((seen * trusted[:, None]).T @ seen / trusted.sum())
    varies = size > 1e-4 * size[-1]
    basis = turn[:, varies] / np.sqrt(size[varies])
    own = _coefficients(seen @ basis, left, _trust(left) * known, rows.unit, num_units)
    num_rows = np.bincount(rows.unit, known, num_units)
    mean = np.average(own, axis=0, weights=num_rows)  # units with hardly a row say hardly a thing
    weighed = np.sqrt(num_rows)[:, None] * (own - mean)
    direction = np.linalg.svd(weighed, full_matrices=False)[2]
    most, lanes = max(SIZES), len(SIZES)
    direction = np.vstack([direction[:most], np.zeros((most, len(mean)))])[:most]

    def layer(w: np.ndarray, b: np.ndarray) -> Layer:
        w, b = (np.repeat(part[None], lanes, axis=0) for part in (w, b))
        return Layer(jnp.asarray(w, jnp.float32), jnp.asarray(b, jnp.float32))

    zero = np.zeros(basis.shape[1])
    made = layer(common, np.log(scale)), layer(basis, zero), layer(direction.T, mean)
    if num_present <= _MOST_PRODUCTS:
        return made
    return (*made, layer(np.zeros((1, len(columns))), columns.astype(np.float64)))


def choose_columns(num_states: int, num_present: int) -> np.ndarray:
    """(k,) int. Columns of states and actions whose squares and products are taken.

    >>> choose_columns(2, 3), choose_columns(100, 104)[-6:], choose_columns(40, 80)[[11, 12]]
    (array([0, 1, 2]), array([ 18,  19, 100, 101, 102, 103]), array([11, 40]))
    """
    num_actions = num_present - num_states
    half = _MOST_PRODUCTS // 2
    acting = min(num_actions, max(half, _MOST_PRODUCTS - num_states))
    moving = min(num_states, _MOST_PRODUCTS - acting)
    return np.concatenate([np.arange(moving), num_states + np.arange(acting)])


def estimate(params: Params, rows: Rows, num_groups: int) -> np.ndarray:
    """(groups, size) float64. z of groups of rows by one lane: all coefficients, then directions.

    To fit z alone would push what lies in other directions into it.
    """
    common, basis, direction = (np.asarray(layer.w, np.float64) for layer in params[:3])
    x = np.asarray(_features(rows.given, _multiplied(params, rows.given)), np.float64)
    left = (rows.outcome - x @ common) / np.exp(np.asarray(params[0].b))
    trusted = _trust(left) * rows.weight.all(axis=1)
    seen = np.asarray(_affine(rows.given), np.float64) @ basis
    own = _coefficients(seen, left, trusted, rows.unit, num_groups)
    return (own - np.asarray(params[2].b, np.float64)) @ direction


def _trust(away: np.ndarray) -> np.ndarray:
    """(n,) float64. Weights of rows, (n, d) deviations from the model: those of a Student t."""
    return (_DEGREES + 1.0) / (_DEGREES + np.square(away).mean(axis=1))


def _coefficients(
    x: np.ndarray, y: np.ndarray, weight: np.ndarray, unit: np.ndarray, num_units: int
) -> np.ndarray:
    """(units, columns x outputs) float64. One regression for each unit."""
    y, order = np.clip(y, -_FAR, _FAR), np.argsort(unit, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(unit, minlength=num_units))[:-1])
    return np.stack([_solve(x[k], y[k], weight[k]).ravel() for k in parts])


def _affine(given: jax.Array | np.ndarray) -> jax.Array:
    x = jnp.clip(jnp.asarray(given), -_FAR, _FAR)
    return jnp.concatenate([jnp.ones((len(x), 1), x.dtype), x], axis=1)


def _features(given: jax.Array | np.ndarray, columns: jax.Array | np.ndarray) -> jax.Array:
    """(n, k) float32. A constant, all columns, squares and products of some of them."""
    x = _affine(given)
    one, two = np.triu_indices(len(columns))
    return jnp.concatenate([x, x[:, 1 + columns[one]] * x[:, 1 + columns[two]]], axis=1)


def _multiplied(params: Params, given: jax.Array | np.ndarray) -> jax.Array | np.ndarray:
    """(k,) int. Columns of which the model of all units has squares and products.

    A fourth layer lists them, where these are not the first; older models have none.
    """
    if params[3:]:
        return params[3].b.astype(np.int32)
    made = params[0].w.shape[-2] - given.shape[1] - 1
    return np.arange((math.isqrt(8 * made + 1) - 1) // 2)


def _solve(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """(columns, outputs) float64. Ridge regression with weights of rows."""
    weighed = x * weight[:, None]
    return np.linalg.solve(weighed.T @ x + _RIDGE * np.eye(x.shape[1]), weighed.T @ y)
