"""Off-policy evaluation: what policies are worth, from logged data alone."""

from __future__ import annotations

from leeward.ope.estimation import estimate
from leeward.ope.options import OpeOptions
from leeward.ope.report import Estimate, PolicyEstimates, Report
from leeward.ope.targets import Target

__all__ = ["Estimate", "OpeOptions", "PolicyEstimates", "Report", "Target", "estimate"]
