"""Predict the gain of each candidate."""

from steproute.predict.base import GainEstimator
from steproute.predict.prior import CapabilityPrior

__all__ = ["CapabilityPrior", "GainEstimator"]
