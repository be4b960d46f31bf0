"""Marginal likelihood of a partition of units into types, in closed form.

Units of a type are normal in the latents; the types' means and their common covariance are
integrated out (normal-inverse-Wishart), with the covariance drawn towards a sphere in the metric of
the likelihood, where a distance is the number of nats a row that parts two units. It weighs fit
against the number of types and the size of the latents by itself.
"""

import numpy as np

PRIOR = 3.0
"""Weight of the sphere, in units."""
SPACING = 0.05
"""Precision of the means of types, in that of a type's units: types lie some deviations apart."""
_SCALES = np.exp(np.linspace(-7.0, 1.0, 25))
"""Variances of the sphere, in those of all units: integrated out."""
_EXTRA = 2.0
"""Nats that every type beyond the second must bring: wear makes groups, too."""


def moments(
    z: np.ndarray, member: np.ndarray, num_types: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Units, posterior means and scatter of the types of each partition.

    Args:
        z: (n, size), or (partitions, n, size).
        member: (partitions, n) int.
        num_types: Types of every partition.
    """
    z = np.broadcast_to(z, (len(member), *z.shape[-2:]))
    centre = z.mean(axis=1, keepdims=True)
    hot = np.eye(num_types)[member]
    count = hot.sum(axis=1)
    own = z - centre
    mean = np.einsum("pnk,pnd->pkd", hot, own) / (count + SPACING)[..., None]
    scatter = np.einsum("pni,pnj->pij", own, own) - np.einsum(
        "pk,pki,pkj->pij", count + SPACING, mean, mean
    )
    return count, mean + centre, scatter


def log_evidence(
    z: np.ndarray, member: np.ndarray, num_types: int, label: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Log marginal likelihood of partitions, up to a constant; and the sphere that fits each best.

    Means of types have a normal prior around the mean of all units with 1 / `SPACING` times the
    covariance of a type; the covariance an inverse Wishart prior around a sphere, whose size is
    integrated out; types' shares a flat one. Which type has which number does not matter. Known
    units were chosen for their type, so they say nothing about shares: units of a large type would
    seldom all be known from one side of it.
    """
    from scipy.special import gammaln  # takes time to import

    n, size = z.shape[-2:]
    count, _, scatter = moments(z, member, num_types)
    degrees = size - 1.0 + PRIOR
    sphere = _SCALES * z.var(axis=-2).mean() + 1e-12
    spectrum = np.maximum(np.linalg.eigvalsh(scatter), 0.0)[:, None] + PRIOR * sphere[:, None]
    fit = 0.5 * degrees * size * np.log(PRIOR * sphere) - 0.5 * (degrees + n) * np.log(
        spectrum
    ).sum(axis=2)
    apart = 0.5 * size * np.log(SPACING / (SPACING + count)).sum(axis=1)
    unknown = count - np.bincount(label[label >= 0], minlength=num_types)
    shares = (
        gammaln(num_types)
        - gammaln((label < 0).sum() + num_types)
        + gammaln(unknown + 1.0).sum(axis=1)
    ) + gammaln(num_types + 1.0)
    value = np.logaddexp.reduce(fit, axis=1) - np.log(len(sphere)) + apart + shares
    value -= _EXTRA * max(num_types - 2, 0)
    return value, sphere[np.argmax(fit, axis=1)]


def partition_evidence(
    z: np.ndarray, member: np.ndarray, label: np.ndarray, driver: np.ndarray
) -> float:
    """Nats by which a partition that was found elsewhere is likelier than one type.

    Args:
        z: (n, size). Latents.
        member: (n,) int. Type of each unit.
        label: (n,) int. As in `fit_types`.
        driver: (n,) int. As in `fit_types`.
    """
    one_type = best_evidence(z, np.zeros(len(z), int), np.minimum(label, 0), driver)
    return best_evidence(z, member, label, driver) - one_type


def best_evidence(
    z: np.ndarray, member: np.ndarray, label: np.ndarray, driver: np.ndarray
) -> float:
    """Log marginal likelihood of a partition, with the drivers' shifts that suit it best."""
    own = z - best_shift(z, member, driver)[driver]
    return float(log_evidence(own, member[None], int(member.max()) + 1, label)[0][0])


def best_shift(z: np.ndarray, member: np.ndarray, driver: np.ndarray) -> np.ndarray:
    """(drivers, size). Shifts that leave the least scatter in the types of a partition.

    Shifts and means of types depend on each other where drivers have unlike shares of the types,
    so both are solved for at once. What either could explain is the drivers': means are drawn to
    the mean of all units (`SPACING`), shifts are free.
    """
    hot, drives = np.eye(int(member.max()) + 1)[member], np.eye(int(driver.max()) + 1)[driver]
    drives = (drives - drives.mean(axis=0))[:, 1:]
    by_type = hot.T @ drives
    left = drives - hot @ (by_type / (hot.sum(axis=0) + SPACING)[:, None])
    shift = np.linalg.solve(left.T @ drives, left.T @ (z - z.mean(axis=0)))
    return np.vstack([np.zeros(z.shape[1]), shift])
