"""Mixture of experts on one rank: gates, routing and feed-forward networks."""
