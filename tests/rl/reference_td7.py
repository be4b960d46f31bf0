"""TD7 in float64 NumPy, gradients by central differences: what `puorl.rl.td7` is held against."""

import numpy as np
from reference_nets import (
    adam_step,
    elu,
    finite_difference_gradient,
    kept_mean,
    member,
    mlp,
)


def avg_l1(x):
    return x / np.maximum(np.abs(x).mean(axis=-1, keepdims=True), 1e-8)


def f(encoder, obs):
    return avg_l1(mlp(encoder.state, obs, elu))


def g(encoder, z, action):
    return mlp(encoder.pair, np.hstack([z, action]), elu)


def pi(actor, obs, z):
    first = avg_l1(mlp(actor.linear, obs))
    return np.tanh(mlp(actor.mlp, np.hstack([first, z])))


def act_td7(policy, obs):
    """Actions of what a learner hands out: ``encoder``, ``linear`` and ``mlp``."""
    return pi(policy, obs, avg_l1(mlp(policy.encoder, obs, elu)))


def twin_q(critic, obs, action, z_pair, z):
    """(2, b): Q(z_sa, z_s, s, a) of both critics."""
    values = []
    for i in range(2):
        one = member(critic, i)
        first = avg_l1(mlp(one.linear, np.hstack([obs, action])))
        values.append(mlp(one.mlp, np.hstack([first, z_pair, z]), elu)[:, 0])
    return np.stack(values)


def unclipped_next_q(state, batch, noise, config):
    z = f(state.target_encoder, batch.next_obs)
    shake = np.clip(noise * config.policy_noise, -config.noise_clip, config.noise_clip)
    action = np.clip(pi(state.target_actor, batch.next_obs, z) + shake, -1, 1)
    z_pair = g(state.target_encoder, z, action)
    return np.minimum(*twin_q(state.target_critic, batch.next_obs, action, z_pair, z))


def td_target(state, batch, noise, config):
    q = np.clip(unclipped_next_q(state, batch, noise, config), state.bounds.low, state.bounds.high)
    return np.where(batch.terminal == 1, batch.reward, batch.reward + config.gamma * q)


def update_encoder(state, batch):
    """Loss and gradient; the embedding that is to be predicted stands still."""
    next_z = f(state.encoder, batch.next_obs)

    def loss(encoder):
        predicted = g(encoder, f(encoder, batch.obs), batch.action)
        return kept_mean(((predicted - next_z) ** 2).mean(axis=1), batch.weight, batch.keep)

    return loss(state.encoder), finite_difference_gradient(loss, state.encoder)


def update_critic(state, batch, wanted, config):
    """Loss, gradient, both critics' values and the errors (2, b)."""
    z = f(state.fixed_encoder, batch.obs)
    z_pair = g(state.fixed_encoder, z, batch.action)

    def loss(critic):
        error = np.abs(twin_q(critic, batch.obs, batch.action, z_pair, z) - wanted)
        least = config.min_priority
        each = np.where(error < least, error**2 / 2, least * error)
        return kept_mean(each[0] + each[1], batch.weight * batch.critic_weight, batch.keep)

    q = twin_q(state.critic, batch.obs, batch.action, z_pair, z)
    grad = finite_difference_gradient(loss, state.critic)
    return loss(state.critic), grad, q, np.abs(q - wanted)


def update_actor(state, batch, config):
    """Loss, gradient and the distance to the data's actions; the scale stands still."""
    z = f(state.fixed_encoder, batch.obs)

    def parts(actor):
        action = pi(actor, batch.obs, z)
        q = twin_q(state.critic, batch.obs, action, g(state.fixed_encoder, z, action), z)
        distance = ((action - batch.action) ** 2).mean(axis=1)
        means = (np.abs(q).mean(axis=0), q.mean(axis=0), distance)
        return [kept_mean(x, batch.weight, batch.keep) for x in means]

    size, _, distance = parts(state.actor)

    def loss(actor):
        _, q, distance = parts(actor)
        return -q + config.bc_weight * size * distance

    return loss(state.actor), finite_difference_gradient(loss, state.actor), distance


def new_priorities(priority, error, batch, config):
    """Rows that were drawn and kept get the largest of their new priorities."""
    priority = priority.copy()
    drawn = np.maximum(error, config.min_priority) ** config.priority_power
    for position in set(batch.position[batch.keep > 0]):
        priority[position] = drawn[(batch.position == position) & (batch.keep > 0)].max()
    return priority


def update(state, batch, noise, number, config):
    """The ``number``-th update, counted from 1: the new state and the metrics."""
    wanted = td_target(state, batch, noise, config)
    encoder_loss, encoder_grad = update_encoder(state, batch)
    critic_loss, critic_grad, q, error = update_critic(state, batch, wanted, config)
    (encoder, critic), moments = adam_step(
        (state.encoder, state.critic),
        (encoder_grad, critic_grad),
        state.moments,
        config.critic_learning_rate,
    )
    kept = wanted[batch.keep > 0]
    state = state._replace(
        encoder=encoder,
        critic=critic,
        moments=moments,
        seen=state.seen._replace(
            low=min(state.seen.low, kept.min()), high=max(state.seen.high, kept.max())
        ),
        priority=new_priorities(state.priority, error.max(axis=0), batch, config),
    )
    metrics = {
        "encoder_loss": encoder_loss,
        "critic_loss": critic_loss,
        "q": kept_mean(q[0], batch.weight, batch.keep),
    }
    if number % config.policy_delay == 0:
        metrics["actor_loss"], grad, metrics["distance"] = update_actor(state, batch, config)
        actor, moments = adam_step(
            state.actor, grad, state.actor_moments, config.actor_learning_rate
        )
        state = state._replace(actor=actor, actor_moments=moments)
    if number % config.copy_every == 0:
        state = state._replace(
            target_actor=state.actor,
            target_critic=state.critic,
            target_encoder=state.fixed_encoder,
            fixed_encoder=state.encoder,
            bounds=state.seen,
        )
    return state, metrics
