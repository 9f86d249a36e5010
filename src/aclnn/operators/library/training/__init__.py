"""Losses, optimizers, recurrent layers and what else training calls."""
