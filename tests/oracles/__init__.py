"""Float64 transcriptions of the papers' equations in numpy, with no Keras.

They are written from the equations, not from the kernels: densities are evaluated as
densities, rules are followed step by step, and nothing is rearranged for float32.
"""
