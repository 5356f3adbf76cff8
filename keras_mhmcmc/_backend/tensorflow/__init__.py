"""TensorFlow: the framework code of the package."""
