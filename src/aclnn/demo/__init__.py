"""``aclnn demo``: the documents' examples, and a training whose backward pass runs on the five gradients."""
