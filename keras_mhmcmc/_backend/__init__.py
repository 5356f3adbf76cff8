"""The framework code of the backend that Keras uses. No other module chooses one.

The folders `jax`, `tensorflow` and `torch` define functions of the same names, which
`jax` describes. What a folder does not define stands in `plain.py`.
"""

import keras
from keras import ops  # replaced below on PyTorch

from keras_mhmcmc._backend.data_sizes import count_examples
from keras_mhmcmc._backend.keras_internals import *  # noqa: F403
from keras_mhmcmc._backend.plain import *  # noqa: F403

if keras.backend.backend() == "jax":
    from keras_mhmcmc._backend.jax.chains import *  # noqa: F403
    from keras_mhmcmc._backend.jax.core import *  # noqa: F403
    from keras_mhmcmc._backend.jax.random import *  # noqa: F403
elif keras.backend.backend() == "tensorflow":
    from keras_mhmcmc._backend.tensorflow.chains import *  # noqa: F403
    from keras_mhmcmc._backend.tensorflow.core import *  # noqa: F403
    from keras_mhmcmc._backend.tensorflow.random import *  # noqa: F403
elif keras.backend.backend() == "torch":
    from keras_mhmcmc._backend.torch import ops
    from keras_mhmcmc._backend.torch.chains import *  # noqa: F403
    from keras_mhmcmc._backend.torch.core import *  # noqa: F403
    from keras_mhmcmc._backend.torch.random import *  # noqa: F403
else:
    raise ImportError(
        "keras_mhmcmc needs a Keras backend that computes gradients: set "
        "KERAS_BACKEND to 'jax', 'tensorflow' or 'torch' before keras is imported. "
        f"Received: KERAS_BACKEND={keras.backend.backend()}"
    )
