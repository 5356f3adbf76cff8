"""The mathematics of the samplers: pure functions of tensors and given noise."""
