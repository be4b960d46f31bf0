"""Discrete BC, IQL, CQL and BCQ in float64 NumPy, row by row; gradients are finite differences."""

import numpy as np
import reference_iql
import reference_nets as nets


def code(batch, i):
    """Which action row i has."""
    return int(np.argmax(batch.action[i]))


def log_chances(network, obs):
    """Log of the softmax of a network's outputs, (b, A)."""
    y = nets.mlp(network, obs)
    return np.log(np.exp(y) / np.exp(y).sum(axis=1, keepdims=True))


def cross_entropy(network, batch, weight=1.0):
    found = log_chances(network, batch.obs)
    each = np.array([found[i, code(batch, i)] for i in range(len(found))])
    return -nets.kept_mean(weight * each, batch.weight, batch.keep)


def step(loss, params, moments, rate):
    grad = nets.finite_difference_gradient(loss, params)
    return nets.adam_step(params, grad, moments, rate)


def update_bc(state, batch, config):
    """The next state and the metrics."""

    def of_actor(actor):
        return cross_entropy(actor, batch)

    actor, moments = step(of_actor, state.actor, state.actor_moments, config.actor_learning_rate)
    new = state._replace(actor=actor, actor_moments=moments)
    return new, {"actor_loss": of_actor(state.actor)}


def update_iql(state, batch, config, num_steps):
    """IQL's own reference, with the policy's part exchanged."""
    gaussian, kept = reference_iql.policy_loss, state

    def softmax_loss(policy, advantage, batch, config):
        weight = reference_iql.advantage_weight(advantage, config)
        return cross_entropy(policy, batch, weight)

    reference_iql.policy_loss = softmax_loss
    try:
        return reference_iql.update(kept, batch, config, num_steps)
    finally:
        reference_iql.policy_loss = gaussian


def huber(x):
    return 0.5 * x * x if abs(x) <= 1 else abs(x) - 0.5


def wanted(state, batch, choice, config):
    """The double-Q target, row by row."""
    judged = nets.mlp(state.target_critic, batch.next_obs)
    found = []
    for i, values in enumerate(choice):
        later = 0.0 if batch.terminal[i] else judged[i, int(np.argmax(values))]
        found.append(batch.reward[i] + config.gamma * later)
    return np.array(found)


def of_data(critic, batch):
    q = nets.mlp(critic, batch.obs)
    return q, np.array([q[i, code(batch, i)] for i in range(len(q))])


def update_cql(state, batch, config):
    """The next state and the metrics."""
    target = wanted(state, batch, nets.mlp(state.critic, batch.next_obs), config)

    def gap(critic):
        q, chosen = of_data(critic, batch)
        return np.log(np.exp(q).sum(axis=1)) - chosen

    def of_critic(critic):
        error = np.array([huber(x) for x in of_data(critic, batch)[1] - target])
        each = error + config.conservative_weight * gap(critic)
        return nets.kept_mean(each, batch.weight * batch.critic_weight, batch.keep)

    critic, moments = step(
        of_critic, state.critic, state.critic_moments, config.critic_learning_rate
    )
    metrics = {
        "critic_loss": of_critic(state.critic),
        "q": nets.kept_mean(of_data(state.critic, batch)[1], batch.weight, batch.keep),
        "gap": nets.kept_mean(gap(state.critic), batch.weight, batch.keep),
    }
    target_critic = nets.towards(state.target_critic, critic, config.tau)
    new = state._replace(critic=critic, target_critic=target_critic, critic_moments=moments)
    return new, metrics


def allowed(critic, behaviour, obs, config):
    """Values of the actions that the behaviour has often enough; the others are never best."""
    q, chances = nets.mlp(critic, obs), np.exp(log_chances(behaviour, obs))
    return np.where(chances / chances.max(axis=1, keepdims=True) >= config.threshold, q, -np.inf)


def update_bcq(state, batch, config):
    """The next state and the metrics."""
    choice = allowed(state.critic, state.behaviour, batch.next_obs, config)
    target = wanted(state, batch, choice, config)

    def of_critic(critic):
        error = np.array([huber(x) for x in of_data(critic, batch)[1] - target])
        return nets.kept_mean(error, batch.weight * batch.critic_weight, batch.keep)

    def of_behaviour(behaviour):
        return cross_entropy(behaviour, batch)

    critic, critic_moments = step(
        of_critic, state.critic, state.critic_moments, config.critic_learning_rate
    )
    behaviour, behaviour_moments = step(
        of_behaviour, state.behaviour, state.behaviour_moments, config.actor_learning_rate
    )
    metrics = {
        "critic_loss": of_critic(state.critic),
        "q": nets.kept_mean(of_data(state.critic, batch)[1], batch.weight, batch.keep),
        "actor_loss": of_behaviour(state.behaviour),
    }
    new = state._replace(
        critic=critic,
        target_critic=nets.towards(state.target_critic, critic, config.tau),
        behaviour=behaviour,
        critic_moments=critic_moments,
        behaviour_moments=behaviour_moments,
    )
    return new, metrics
