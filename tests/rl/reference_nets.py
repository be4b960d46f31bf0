"""Networks, Adam and gradients in float64 NumPy: what the references of the learners stand on.

Trees are nested tuples (named ones keep their type), lists, dicts and None; all else is a leaf.
"""

import numpy as np

NORM_EPSILON = 1e-5


def leaves(tree):
    """The arrays of a tree, in the order of its fields."""
    if tree is None:
        return []
    if isinstance(tree, dict):
        return [leaf for name in sorted(tree) for leaf in leaves(tree[name])]
    if isinstance(tree, tuple | list):
        return [leaf for part in tree for leaf in leaves(part)]
    return [tree]


def map_tree(function, *trees):
    """The tree of ``function`` of the leaves, taken together from trees of one shape."""
    first = trees[0]
    if first is None:
        return None
    if isinstance(first, dict):
        return {name: map_tree(function, *(tree[name] for tree in trees)) for name in first}
    if isinstance(first, tuple | list):
        parts = [map_tree(function, *together) for together in zip(*trees, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    return function(*trees)


def to_float64(tree):
    """The tree in NumPy: real numbers in float64, whole numbers and truths as they are."""

    def convert(leaf):
        array = np.array(leaf)
        return array.astype(np.float64) if array.dtype.kind == "f" else array

    return map_tree(convert, tree)


def random_rows(rng, num_rows, obs_dim, act_dim):
    """Rows of a batch by name: about a third not kept, and far off; weights that are not all 1."""
    keep = (np.arange(num_rows) % 3 != 1).astype(np.float32)
    far = np.where(keep > 0, 1.0, 9.0)
    rows = {
        "obs": rng.normal(size=(num_rows, obs_dim)) * far[:, None],
        "action": rng.uniform(-1, 1, (num_rows, act_dim)),
        "reward": rng.normal(size=num_rows) * far,
        "next_obs": rng.normal(size=(num_rows, obs_dim)) * far[:, None],
        "terminal": np.arange(num_rows) % 4 == 3,
        "next_action": rng.uniform(-1, 1, (num_rows, act_dim)),
        "keep": keep,
        "weight": rng.uniform(0.5, 1.5, num_rows),
        "critic_weight": rng.uniform(0.5, 1.5, num_rows),
    }
    rows = {name: array.astype(np.float32) for name, array in rows.items()}
    return rows | {"position": np.arange(num_rows, dtype=np.int32)}


def stirred(tree, rng, size=0.2):
    """The tree in float32 with noise on all, so that no bias is 0 and no target is its network."""

    def stir(leaf):
        return (np.asarray(leaf) + size * rng.normal(size=np.shape(leaf))).astype(np.float32)

    return map_tree(stir, tree)


def relu(x):
    return np.maximum(x, 0.0)


def elu(x):
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0.0)))


def layer_norm(x, scale, offset):
    """Mean 0 and variance 1 over the last axis, then a learnt scale and offset."""
    mean, variance = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + NORM_EPSILON) * scale + offset


def mlp(params, x, activation=relu):
    """Map x (..., fan_in) to (..., fan_out); ``params`` are layers with ``w``, ``b``, ``norm``."""
    for layer in params[:-1]:
        x = x @ layer.w + layer.b
        if layer.norm is not None:
            x = layer_norm(x, layer.norm.scale, layer.norm.offset)
        x = activation(x)
    return x @ params[-1].w + params[-1].b


def member(params, i):
    """One network of an ensemble."""
    return map_tree(lambda leaf: leaf[i], params)


def ensemble(params, x, activation=relu):
    """What every member says of the same x (batch, fan_in): (members, batch, fan_out)."""
    num_members = len(params[0].w)
    return np.stack([mlp(member(params, i), x, activation) for i in range(num_members)])


def kept_mean(x, weight, keep):
    """Mean of weight * x over the rows that are kept, (b,) each."""
    kept = keep > 0
    return (weight * x)[kept].mean()


def adam_step(params, grad, moments, learning_rate, weight_decay=0.0):
    """One step of Kingma and Ba's algorithm 1.

    Args:
        params: A tree.
        grad: Of the same shape.
        moments: With ``mean``, ``square`` (shaped like params) and ``num_updates``.
        learning_rate: Step size.
        weight_decay: L2 that is part of the gradient.

    Returns:
        The moved parameters and the new moments.
    """
    t = int(moments.num_updates) + 1
    grad = map_tree(lambda g, p: g + weight_decay * p, grad, params)
    mean = map_tree(lambda m, g: 0.9 * m + 0.1 * g, moments.mean, grad)
    square = map_tree(lambda v, g: 0.999 * v + 0.001 * g**2, moments.square, grad)

    def move(p, m, v):
        return p - learning_rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)

    new = moments._replace(mean=mean, square=square, num_updates=np.array(t))
    return map_tree(move, params, mean, square), new


def towards(target, params, tau):
    """The moving average of the parameters."""
    return map_tree(lambda t, p: (1 - tau) * t + tau * p, target, params)


def finite_difference_gradient(loss, tree, step=1e-6):
    """Central differences of loss(tree) by every number of a float64 tree.

    Args:
        loss: A function of the tree alone, to a number.
        tree: Of float64 arrays; as it was when this returns.
        step: How far each number is moved either way.
    """
    tree = map_tree(np.array, tree)

    def of_leaf(leaf):
        grad = np.zeros_like(leaf)
        for i in np.ndindex(leaf.shape):
            at = leaf[i]
            leaf[i] = at + step
            above = loss(tree)
            leaf[i] = at - step
            below = loss(tree)
            leaf[i] = at
            grad[i] = (above - below) / (2 * step)
        return grad

    return map_tree(of_leaf, tree)


def relative_error(ours, expected):
    """Norm of the difference over the norm of what is expected (of the difference, if 0)."""
    ours, expected = np.asarray(ours, np.float64), np.asarray(expected, np.float64)
    if ours.shape != expected.shape:
        raise AssertionError(f"expected shape {expected.shape}, got {ours.shape}")
    size = np.linalg.norm(expected)
    return np.linalg.norm(ours - expected) / (size if size > 0 else 1.0)


def assert_trees_agree(ours, expected, tolerance=1e-4):
    """Fail, with the place of it, at the first leaf that is further off than ``tolerance``."""
    _agree(ours, expected, tolerance, "state")


def _agree(ours, expected, tolerance, place):
    if expected is None:
        assert ours is None, place
    elif isinstance(expected, dict):
        assert set(ours) == set(expected), place
        for name in expected:
            _agree(ours[name], expected[name], tolerance, f"{place}[{name!r}]")
    elif isinstance(expected, tuple | list):
        assert len(ours) == len(expected), place
        names = getattr(expected, "_fields", range(len(expected)))
        for name, mine, wanted in zip(names, ours, expected, strict=True):
            _agree(mine, wanted, tolerance, f"{place}.{name}")
    else:
        error = relative_error(ours, expected)
        assert error <= tolerance, f"{place}: off by {error:.2e}"
