"""CQL in float64 NumPy, from the paper's equations; gradients are finite differences."""

import numpy as np
import reference_nets as nets


def q_values(critic, obs, action):
    """Both critics' values of actions (b, m): (2, b)."""
    return nets.ensemble(critic, np.concatenate([obs, action], axis=1))[..., 0]


def draw(actor, obs, noise, config):
    """One action (b, m) of the squashed Gaussian policy at every state, and its density (b,)."""
    mean, log_std = np.split(nets.mlp(actor, obs), 2, axis=1)
    std = np.exp(np.clip(log_std + config.log_std_offset, -20, 2))
    raw = mean + std * noise
    normal = np.exp(-0.5 * noise**2) / (std * np.sqrt(2 * np.pi))
    # Squashing divides the density by the slope of tanh, which is 1 / cosh^2.
    return np.tanh(raw), np.prod(normal * np.cosh(raw) ** 2, axis=1)


def integral_of_exp_q(critic, actor, batch, noise, config):
    """Estimate of the integral of exp(Q(s, a)) over all actions, (2, b): eq. in appendix F."""
    terms = []
    for action in noise.uniform:
        terms.append(np.exp(q_values(critic, batch.obs, action)) * 2.0 ** action.shape[1])
    for drawn_at, kind in zip((batch.obs, batch.next_obs), noise.normal, strict=True):
        for one in kind[1:]:
            action, density = draw(actor, drawn_at, one, config)
            terms.append(np.exp(q_values(critic, batch.obs, action)) / density)
    return np.mean(terms, axis=0)


def gaps(critic, actor, batch, noise, config):
    integral = integral_of_exp_q(critic, actor, batch, noise, config)
    return np.log(integral) - q_values(critic, batch.obs, batch.action)


def critic_loss(critic, actor, target, batch, noise, config):
    errors = (q_values(critic, batch.obs, batch.action) - target) ** 2
    both = errors + config.conservative_weight * gaps(critic, actor, batch, noise, config)
    return nets.kept_mean(both.sum(axis=0), batch.weight * batch.critic_weight, batch.keep)


def td_target(state, batch, noise, config):
    action, _ = draw(state.policy.actor, batch.next_obs, noise.normal[1][0], config)
    q1, q2 = q_values(state.target_critic, batch.next_obs, action)
    return batch.reward + np.where(batch.terminal > 0, 0.0, config.gamma * np.minimum(q1, q2))


def actor_loss(actor, entropy_weight, critic, batch, noise, config):
    action, density = draw(actor, batch.obs, noise.normal[0][0], config)
    q1, q2 = q_values(critic, batch.obs, action)
    loss = entropy_weight * np.log(density) - np.minimum(q1, q2)
    return nets.kept_mean(loss, batch.weight, batch.keep)


def update(state, batch, noise, config):
    """The next state and the metrics; every array in float64."""

    def mean(x):
        return nets.kept_mean(x, batch.weight, batch.keep)

    actor, entropy_weight = state.policy.actor, np.exp(state.policy.log_entropy_weight)
    target = td_target(state, batch, noise, config)

    def of_critic(critic):
        return critic_loss(critic, actor, target, batch, noise, config)

    def of_actor(moving):
        return actor_loss(moving, entropy_weight, state.critic, batch, noise, config)

    _, density = draw(actor, batch.obs, noise.normal[0][0], config)
    entropy_target = -batch.action.shape[1]
    metrics = {
        "critic_loss": of_critic(state.critic),
        "actor_loss": of_actor(actor),
        "q": mean(q_values(state.critic, batch.obs, batch.action)[0]),
        "gap": mean(gaps(state.critic, actor, batch, noise, config).mean(axis=0)),
        "entropy": mean(-np.log(density)),
        "entropy_weight": entropy_weight,
    }
    policy_grad = state.policy._replace(
        actor=nets.finite_difference_gradient(of_actor, actor),
        # The weight's loss is log weight times the mean surplus of entropy over its target.
        log_entropy_weight=mean(-np.log(density) - entropy_target),
    )
    critic_grad = nets.finite_difference_gradient(of_critic, state.critic)
    policy, policy_moments = nets.adam_step(
        state.policy, policy_grad, state.policy_moments, config.actor_learning_rate
    )
    critic, critic_moments = nets.adam_step(
        state.critic, critic_grad, state.critic_moments, config.critic_learning_rate
    )
    new = state._replace(
        policy=policy,
        critic=critic,
        target_critic=nets.towards(state.target_critic, critic, config.tau),
        policy_moments=policy_moments,
        critic_moments=critic_moments,
    )
    return new, metrics


def conservative_q(action, reward, density, weight):
    """What minimises E (Q - r)^2 + weight * (log integral exp(Q) - E Q) in a one-step problem.

    Where the gradient is 0, Q + weight / 2 * exp(Q) / (Z * density) = r + weight / 2 for every
    action, Z being the integral of exp(Q): Newton's steps for Q inside a bisection for Z.

    Args:
        action: (k,) an even grid.
        reward: (k,) of each action.
        density: (k,) of the data's actions.
        weight: Of the gap.
    """
    low, high = 1e-3, 1e3
    for _ in range(60):
        z, q = np.sqrt(low * high), reward.copy()
        for _ in range(30):
            pull = weight / 2 * np.exp(q) / (z * density)
            q = q - (q + pull - reward - weight / 2) / (1 + pull)
        low, high = (z, high) if np.trapezoid(np.exp(q), action) > z else (low, z)
    return q
