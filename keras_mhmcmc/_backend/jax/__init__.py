"""JAX: the framework code of the package."""
