"""The samplers: one file holds a sampler, its mathematics and its optimizer."""
