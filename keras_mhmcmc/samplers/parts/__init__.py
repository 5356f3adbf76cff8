"""What several samplers share: moves, tests, adaptation, algebra of positions."""
