"""Mixtures of experts on one rank: gates, routes to experts and back."""
