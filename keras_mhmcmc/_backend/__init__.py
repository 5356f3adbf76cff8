"""The framework code of the backend that Keras uses. No other module chooses one.

The folders `jax`, `tensorflow` and `torch` define functions of the same names, which
`jax` describes. What a folder does not define stands in `plain.py`.
"""

import keras
from keras import ops  # replaced below on PyTorch

from keras_mhmcmc._backend.data_sizes import count_examples
from keras_mhmcmc._backend.keras_internals import adding_layers
from keras_mhmcmc._backend.keras_internals import any_number_of_rows
from keras_mhmcmc._backend.keras_internals import assign_after_loading
from keras_mhmcmc._backend.keras_internals import changed_by_saving
from keras_mhmcmc._backend.keras_internals import compile_arguments
from keras_mhmcmc._backend.keras_internals import compile_key
from keras_mhmcmc._backend.keras_internals import compiled_losses
from keras_mhmcmc._backend.keras_internals import give_masks
from keras_mhmcmc._backend.keras_internals import inner_layers
from keras_mhmcmc._backend.keras_internals import input_signature
from keras_mhmcmc._backend.keras_internals import layout_of
from keras_mhmcmc._backend.keras_internals import makes_masks
from keras_mhmcmc._backend.keras_internals import mask_of
from keras_mhmcmc._backend.keras_internals import network_of
from keras_mhmcmc._backend.keras_internals import put_back_values
from keras_mhmcmc._backend.keras_internals import record_loss
from keras_mhmcmc._backend.keras_internals import return_values
from keras_mhmcmc._backend.keras_internals import split_call
from keras_mhmcmc._backend.keras_internals import step_outputs
from keras_mhmcmc._backend.keras_internals import values_kept
from keras_mhmcmc._backend.model_files import made_again
from keras_mhmcmc._backend.model_files import model_in_file
from keras_mhmcmc._backend.model_files import portable
from keras_mhmcmc._backend.model_files import refuse_legacy_file
from keras_mhmcmc._backend.plain import *  # noqa: F403
from keras_mhmcmc._backend.running_fit import error_leaves_fit
from keras_mhmcmc._backend.running_fit import fitted_data
from keras_mhmcmc._backend.running_fit import fitting_frame
from keras_mhmcmc._backend.running_fit import is_fitting
from keras_mhmcmc._backend.running_fit import training_model

if keras.backend.backend() == "jax":
    from keras_mhmcmc._backend.jax.chains import *  # noqa: F403
    from keras_mhmcmc._backend.jax.core import *  # noqa: F403
    from keras_mhmcmc._backend.jax.random import *  # noqa: F403
    from keras_mhmcmc._backend.jax.replicas import *  # noqa: F403
elif keras.backend.backend() == "tensorflow":
    from keras_mhmcmc._backend.tensorflow.chains import *  # noqa: F403
    from keras_mhmcmc._backend.tensorflow.core import *  # noqa: F403
    from keras_mhmcmc._backend.tensorflow.random import *  # noqa: F403
    from keras_mhmcmc._backend.tensorflow.replicas import *  # noqa: F403
elif keras.backend.backend() == "torch":
    from keras_mhmcmc._backend.torch import ops
    from keras_mhmcmc._backend.torch.chains import *  # noqa: F403
    from keras_mhmcmc._backend.torch.core import *  # noqa: F403
    from keras_mhmcmc._backend.torch.random import *  # noqa: F403
    from keras_mhmcmc._backend.torch.replicas import *  # noqa: F403
else:
    raise ImportError(
        "keras_mhmcmc needs a Keras backend that computes gradients: set "
        "KERAS_BACKEND to 'jax', 'tensorflow' or 'torch' before keras is imported. "
        f"Received: KERAS_BACKEND={keras.backend.backend()}"
    )
