"""Behaviour cloning in float64 NumPy; gradients are finite differences."""

import numpy as np
import reference_nets as nets


def actor_loss(actor, batch):
    distance = ((np.tanh(nets.mlp(actor, batch.obs)) - batch.action) ** 2).mean(axis=1)
    return nets.kept_mean(distance, batch.weight, batch.keep)


def update(state, batch, config):
    """The next state and the metrics; every array in float64."""

    def of_actor(actor):
        return actor_loss(actor, batch)

    grad = nets.finite_difference_gradient(of_actor, state.actor)
    actor, moments = nets.adam_step(
        state.actor, grad, state.actor_moments, config.actor_learning_rate
    )
    new = state._replace(actor=actor, actor_moments=moments)
    return new, {"actor_loss": of_actor(state.actor)}
