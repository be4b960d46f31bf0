"""IQL in float64 NumPy, from the paper's equations; gradients are finite differences."""

import numpy as np
import reference_nets as nets


def v_values(value, obs):
    return nets.mlp(value, obs)[:, 0]


def smaller_q(critic, batch):
    return q_values(critic, batch).min(axis=0)


def q_values(critic, batch):
    return nets.ensemble(critic, np.concatenate([batch.obs, batch.action], axis=1))[..., 0]


def density(policy, batch):
    """Of the data's actions under a diagonal Gaussian: a product of textbook densities."""
    std = np.exp(np.clip(policy.log_std, -5, 2))
    z = (batch.action - nets.mlp(policy.mean, batch.obs)) / std
    return np.prod(np.exp(-0.5 * z**2) / (std * np.sqrt(2 * np.pi)), axis=1)


def value_loss(value, q, batch, config):
    u = q - v_values(value, batch.obs)
    return nets.kept_mean(np.abs(config.expectile - (u < 0)) * u**2, batch.weight, batch.keep)


def advantage_weight(advantage, config):
    return np.minimum(np.exp(config.beta * advantage), config.max_weight)


def policy_loss(policy, advantage, batch, config):
    likelihood = advantage_weight(advantage, config) * np.log(density(policy, batch))
    return -nets.kept_mean(likelihood, batch.weight, batch.keep)


def critic_loss(critic, wanted, batch):
    q1, q2 = q_values(critic, batch)
    error = (q1 - wanted) ** 2 + (q2 - wanted) ** 2
    return nets.kept_mean(error, batch.weight * batch.critic_weight, batch.keep)


def learning_rate(num_updates, num_steps, config):
    if num_updates >= num_steps:
        return 0.0
    return config.actor_learning_rate * (1 + np.cos(np.pi * num_updates / num_steps)) / 2


def update(state, batch, config, num_steps):
    """The next state and the metrics; every array in float64."""
    q = smaller_q(state.target_critic, batch)

    def of_value(value):
        return value_loss(value, q, batch, config)

    grad = nets.finite_difference_gradient(of_value, state.value)
    value, value_moments = nets.adam_step(
        state.value, grad, state.value_moments, config.value_learning_rate
    )

    advantage = q - v_values(value, batch.obs)

    def of_policy(policy):
        return policy_loss(policy, advantage, batch, config)

    grad = nets.finite_difference_gradient(of_policy, state.policy)
    rate = learning_rate(int(state.policy_moments.num_updates), num_steps, config)
    policy, policy_moments = nets.adam_step(state.policy, grad, state.policy_moments, rate)

    next_v = np.where(batch.terminal > 0, 0.0, v_values(value, batch.next_obs))
    wanted = batch.reward + config.gamma * next_v

    def of_critic(critic):
        return critic_loss(critic, wanted, batch)

    grad = nets.finite_difference_gradient(of_critic, state.critic)
    critic, critic_moments = nets.adam_step(
        state.critic, grad, state.critic_moments, config.critic_learning_rate
    )

    def mean(x):
        return nets.kept_mean(x, batch.weight, batch.keep)

    metrics = {
        "critic_loss": of_critic(state.critic),
        "value_loss": of_value(state.value),
        "actor_loss": of_policy(state.policy),
        "q": mean(q_values(state.critic, batch)[0]),
        "v": mean(v_values(state.value, batch.obs)),
        "advantage": mean(advantage),
    }
    new = state._replace(
        policy=policy,
        value=value,
        critic=critic,
        target_critic=nets.towards(state.target_critic, critic, config.tau),
        policy_moments=policy_moments,
        value_moments=value_moments,
        critic_moments=critic_moments,
    )
    return new, metrics
