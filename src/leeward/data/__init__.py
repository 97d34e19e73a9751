"""Logged data: what it looks like in memory, where it comes from, and whether it is fit to use."""

from leeward.data.checks import Report, inspect
from leeward.data.dataset import Dataset, best_episodes, split_by_episode
from leeward.data.findings import Finding
from leeward.data.load import load_dataset
from leeward.data.registry import normalized_score, reference_scores
from leeward.data.table_columns import TableColumns
from leeward.data.write import write_d4rl, write_dataset

__all__ = [
    "Dataset",
    "Finding",
    "Report",
    "TableColumns",
    "best_episodes",
    "inspect",
    "load_dataset",
    "normalized_score",
    "reference_scores",
    "split_by_episode",
    "write_d4rl",
    "write_dataset",
]
