"""Losses, optimizers, recurrent layers and other operators of training."""
