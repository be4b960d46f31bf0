"""Methods made for rows whose domain is known: by the labels alone, a filter or the truth."""

import dataclasses
import os
from abc import abstractmethod
from typing import Any

import numpy as np

from puorl.data.split import PUSplit
from puorl.data.training_set import TrainingSet
from puorl.methods.base import Method
from puorl.methods.baselines import is_target
from puorl.methods.pu import Filtering


class DomainMethod(Method):
    """Base class of such methods.

    Here the labelled rows are the target's. Of unlabelled rows a subclass gives the probability
    that they are: 0 unless it is overridden, as in the PUORL paper's appendix on baselines, which
    takes all of them as the source's although some are the target's.
    """

    def target_probability(
        self, split: PUSplit, *, seed: int, checkpoint: str | os.PathLike[str] | None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Return the probability of each unlabelled row, (u,) float32, and what was found."""
        del seed, checkpoint
        return np.zeros(len(split.unlabelled), np.float32), {}

    @abstractmethod
    def from_domains(self, split: PUSplit, probability: np.ndarray, *, seed: int) -> TrainingSet:
        """Make the training set from these domain labels."""

    def prepare(
        self, split: PUSplit, *, seed: int, checkpoint: str | os.PathLike[str] | None = None
    ) -> TrainingSet:
        """Make the training set.

        Args:
            split: Labelled and unlabelled rows.
            seed: Seed of networks, batches and the filter, where there are some.
            checkpoint: Folder for the progress of a filter.

        Raises:
            DataError: No next states, no rewards where they are needed, or an unknown truth.
        """
        probability, found = self.target_probability(split, seed=seed, checkpoint=checkpoint)
        made = self.from_domains(split, probability, seed=seed)
        return dataclasses.replace(made, metadata={**made.metadata, **found})


class FilterLabels(Filtering, DomainMethod):
    """Domain labels are the probabilities of a filter."""

    def target_probability(
        self, split: PUSplit, *, seed: int, checkpoint: str | os.PathLike[str] | None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Return the filter's probabilities, with what it found."""
        fitted = self.fitted(split, seed=seed, checkpoint=checkpoint)
        return fitted.predict_proba(split), self.found(fitted, split)


class TrueLabels(DomainMethod):
    """Domain labels are the truth: what a method gets where every row is labelled."""

    def target_probability(
        self, split: PUSplit, *, seed: int, checkpoint: str | os.PathLike[str] | None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Return 1 for rows of the target and 0 for others.

        Raises:
            DataError: The truth of this split is unknown.
        """
        del seed, checkpoint
        found = is_target(split)
        return found.astype(np.float32), {"alpha": float(found.mean())}
