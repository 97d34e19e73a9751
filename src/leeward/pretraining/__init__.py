"""Phases before an algorithm's own, each with its settings, state, updates and measures."""
