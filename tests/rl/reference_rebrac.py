"""ReBRAC in float64 NumPy, from its formulas; gradients are finite differences."""

import numpy as np
import reference_nets as nets


def critics(params, obs, action):
    """Both critics' values (2, b): affine, ReLU, then the layer's normalisation."""
    values = []
    for i in range(2):
        *hidden, last = nets.member(params, i)
        x = np.concatenate([obs, action], axis=1)
        for layer in hidden:
            x = nets.relu(x @ layer.w + layer.b)
            x = nets.layer_norm(x, layer.norm.scale, layer.norm.offset)
        values.append((x @ last.w + last.b)[:, 0])
    return np.stack(values)


def act(actor, obs):
    return np.tanh(nets.mlp(actor, obs))


def distance(a, b):
    return ((a - b) ** 2).sum(axis=1)


def td_target(state, batch, noise, config):
    shake = np.clip(config.policy_noise * noise, -config.noise_clip, config.noise_clip)
    next_action = np.clip(act(state.target_actor, batch.next_obs) + shake, -1, 1)
    q1, q2 = critics(state.target_critic, batch.next_obs, next_action)
    penalty = config.critic_penalty * distance(next_action, batch.next_action)
    future = np.where(batch.terminal > 0, 0.0, np.minimum(q1, q2) - penalty)
    return batch.reward + config.gamma * future


def critic_loss(critic, target, batch):
    q1, q2 = critics(critic, batch.obs, batch.action)
    error = (q1 - target) ** 2 + (q2 - target) ** 2
    return nets.kept_mean(error, batch.weight * batch.critic_weight, batch.keep)


def q_of_actor(actor, critic, batch):
    return critics(critic, batch.obs, act(actor, batch.obs)).min(axis=0)


def actor_loss(actor, critic, size, batch, config):
    """``size`` is the mean absolute Q, a constant of the loss."""
    penalty = config.actor_penalty * distance(act(actor, batch.obs), batch.action)
    loss = penalty - q_of_actor(actor, critic, batch) / size
    return nets.kept_mean(loss, batch.weight, batch.keep)


def update(state, batch, noise, phase, config):
    """The next state and the metrics; every array in float64."""

    def mean(x):
        return nets.kept_mean(x, batch.weight, batch.keep)

    target = td_target(state, batch, noise, config)

    def of_critic(critic):
        return critic_loss(critic, target, batch)

    metrics = {
        "critic_loss": of_critic(state.critic),
        "q": mean(critics(state.critic, batch.obs, batch.action)[0]),
    }
    grad = nets.finite_difference_gradient(of_critic, state.critic)
    critic, moments = nets.adam_step(
        state.critic, grad, state.critic_moments, config.critic_learning_rate
    )
    state = state._replace(critic=critic, critic_moments=moments)
    if phase + 1 < config.policy_delay:
        return state, metrics

    size = mean(np.abs(q_of_actor(state.actor, critic, batch)))

    def of_actor(actor):
        return actor_loss(actor, critic, size, batch, config)

    metrics["actor_loss"] = of_actor(state.actor)
    metrics["distance"] = mean(distance(act(state.actor, batch.obs), batch.action))
    grad = nets.finite_difference_gradient(of_actor, state.actor)
    actor, moments = nets.adam_step(
        state.actor, grad, state.actor_moments, config.actor_learning_rate
    )
    state = state._replace(
        actor=actor,
        actor_moments=moments,
        target_actor=nets.towards(state.target_actor, actor, config.tau),
        target_critic=nets.towards(state.target_critic, critic, config.tau),
    )
    return state, metrics
