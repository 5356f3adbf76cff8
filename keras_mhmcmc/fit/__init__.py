"""How a sampler runs inside Keras: the adapter, the chain in its model, checks."""
