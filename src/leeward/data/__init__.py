"""Logged data: what it looks like in memory, where it comes from, and whether it is fit to use."""

from leeward.data.dataset import Dataset, best_episodes, split_by_episode
from leeward.data.load import load_dataset
from leeward.data.registry import normalized_score, reference_scores
from leeward.data.table_columns import TableColumns

__all__ = [
    "Dataset",
    "TableColumns",
    "best_episodes",
    "load_dataset",
    "normalized_score",
    "reference_scores",
    "split_by_episode",
]
