"""TensorFlow: the code of the package that calls this framework."""
