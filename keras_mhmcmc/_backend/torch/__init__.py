"""PyTorch: the framework code of the package."""
