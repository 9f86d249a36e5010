"""``aclnn demo``: the documents' examples, and a training whose gradients the five operators compute."""
