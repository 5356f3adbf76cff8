"""Reversible SGLD with an adapted beta as a Keras optimizer."""

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc import proposals
from keras_mhmcmc._backend import ops
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc.algorithms import adaptation
from keras_mhmcmc.algorithms import metropolis
from keras_mhmcmc.algorithms import moves
from keras_mhmcmc.algorithms import tensors
from keras_mhmcmc.optimizers.initializers import constant
from keras_mhmcmc.optimizers.metropolis import MetropolisSampler
from keras_mhmcmc.optimizers.mhbt import batch_temperature

_WARM_UP = 16  # forward steps after which `beta="auto"` chooses for the first time


@serializable
class RSGLD(MetropolisSampler):
    """Mini-batch Metropolis-Hastings with reversible SGLD proposals.

    A step goes down the gradient, or, as often, up it with noise that is wider by a
    factor beta, and is then accepted or rejected on the next mini-batch.
    Samples exp(-U/T) approximately with `normalized=True` and a fixed beta, where U is
    the energy in nats, train_size * loss - log prior. The paper's ratio and noise, the
    defaults, move networks, and are nearly an optimizer: on a Bayesian
    logistic regression (N = 565, d = 31, learning rate 0.5) a chain of 2,000 to 20,000
    steps had 9 to 21% of the posterior's standard deviation
    (`examples/benchmarks/laws.py --only rsgld`).
    A loss or gradient that is not finite is a rejected proposal. Keeps two copies of
    the weights.

    Args:
        learning_rate: epsilon, as in `keras.optimizers.SGD`; at least 0, or a schedule.
        train_size: number of training examples, N.
        batch_size: number of examples in a mini-batch, m.
        temperature: T, greater than 0, or a schedule. Defaults to N/m (c_n = m).
        beta: factor, at least 1, of the backward move's noise; "auto" chooses the
            first one from the first forward proposals.
        beta_adaptation: "replay" chooses, at the end of each epoch of N // m steps,
            the smallest beta that would have given 90% of the best acceptance;
            "paper" is the rule of the paper; None keeps beta fixed, which is what
            the theory of Markov chains asks for (with "auto": after its first choice).
        noise_temperature: temperature of the proposal's noise, whose variance is
            2 learning_rate noise_temperature / N; greater than 0. Defaults to 1/N, as
            in the paper; T is the choice for low dimensions.
        normalized: if True, the density ratio carries its normalising constants, and
            detailed balance is exact: for low dimensions.
        prior: such as `mh.priors.Gaussian(scale)`; None is a flat prior.
        seed: integer in [0, 2**31) that makes the draws repeatable; None draws one.
        name: name of the optimizer.

    Raises:
        ValueError: an argument is outside its range, an option of the Keras base class
            is given that would change the sampled law, or, in the first step, the loss
            did not arrive.

    Example:

    >>> import keras
    >>> import keras_mhmcmc as mh
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    >>> model.compile(
    ...     optimizer=mh.RSGLD(0.2, train_size=20000, batch_size=100),
    ...     loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    ... )

    Reference: Wu, Wang and Wong (2020), "Mini-batch Metropolis-Hastings with
    reversible SGLD proposal", section 2.3 and 3.2.
    """

    def __init__(
        self,
        learning_rate,
        *,
        train_size,
        batch_size,
        temperature=None,
        beta="auto",
        beta_adaptation="replay",
        noise_temperature=None,
        normalized=False,
        prior=None,
        seed=None,
        name="rsgld",
        **options,
    ):
        first_beta = 1.0
        if not (isinstance(beta, str) and beta == "auto"):
            beta = first_beta = _validate.number(
                "beta", beta, _validate.Interval(1.0), hint='Or "auto".'
            )
        super().__init__(
            learning_rate,
            train_size=train_size,
            batch_size=batch_size,
            proposal=proposals.ReversibleLangevin(
                first_beta, noise_temperature, normalized
            ),
            temperature=batch_temperature(temperature, train_size, batch_size),
            prior=prior,
            seed=seed,
            name=name,
            options=options,
        )
        self.beta = beta
        self.beta_adaptation = _validate.choice(
            "beta_adaptation", beta_adaptation, ("replay", "paper", None)
        )

    def _build_slots(self, variables):
        super()._build_slots(variables)
        is_auto = self.beta == "auto"
        # 0 until "auto" has seen a gradient. Initializers, since on TensorFlow `build`
        # may be traced into the step, where an assignment would be repeated.
        self._beta = self.add_variable(
            self._chain_shape(),
            constant(0.0 if is_auto else self.beta),
            "float32",
            name="beta",
        )
        self._warm_up = self.add_variable(
            self._chain_shape(),
            constant(float(_WARM_UP) if is_auto else 0.0),
            "float32",
            name="warm_up",
        )
        replay, paper = {}, {}
        if is_auto or self.beta_adaptation == "replay":
            replay = {
                "replay_acceptance": (adaptation.REPLAY_TRIALS,),
                "replay_limit": (),
                "replay_count": (),
            }
        if self.beta_adaptation == "paper":
            paper = {
                "paper_acceptance": (adaptation.PAPER_WINDOW, adaptation.PAPER_TRIALS),
                "paper_count": (),
                "paper_accepted": (),
                "paper_proposed": (),
            }
        self._replay = self._add_records(replay)
        self._paper = self._add_records(paper)
        self._dimension = tensors.size(variables, self._has_chains)

    def _add_records(self, shapes):
        return [
            self.add_variable(self._chain_shape(*shape), dtype="float32", name=name)
            for name, shape in shapes.items()
        ]

    def _scales(self, gradient, learning_rate, temperature):
        scales = super()._scales(gradient, learning_rate, temperature)
        beta = ops.convert_to_tensor(self._beta)
        if self.beta == "auto":
            known = beta

            def first():
                chosen = moves.strong_gradient_beta(gradient, scales, self._has_chains)
                return ops.where(known > 0.0, known, chosen)

            beta = _backend.cond(ops.all(known > 0.0), lambda: known, first)
            _backend.write([self._beta], [beta])
        return scales._replace(beta=beta)

    def _log_q_ratio(self, delta, gradient, new_gradient, scales):
        squared_distances = self.proposal.squared_distances(
            delta, gradient, new_gradient, scales, self._has_chains
        )
        ratio = self.proposal.log_ratio_at(
            squared_distances, scales.beta, self._dimension
        )
        return ratio, squared_distances

    def _adapt(
        self, record, state_energy, evaluated_energy, temperature, info, forward
    ):
        steps = self.train_size // self.batch_size
        is_epoch_end = (ops.convert_to_tensor(self._iterations) + 1) % steps == 0
        energy_ratio = metropolis.energy_log_ratio(
            state_energy, evaluated_energy, temperature
        )
        beta = ops.convert_to_tensor(self._beta)

        limit = moves.strong_gradient_limit(record)

        def judged(trials):
            squared_distances = moves.SquaredDistances(
                *(ops.expand_dims(r, -1) for r in record)
            )
            ratio = self.proposal.log_ratio_at(
                squared_distances, trials, self._dimension
            )
            return adaptation.acceptance(ratio, energy_ratio, info.finite)

        def acceptance(trials):
            # Only proposals that went forward count, which is half of them.
            none = ops.zeros_like(ops.expand_dims(limit, -1) * trials)
            counts = ops.any(forward & info.proposed)
            return _backend.cond(counts, lambda: judged(trials), lambda: none)

        seen = (limit, forward, info.accepted, info.proposed)
        warm_up = self.beta == "auto"
        if warm_up or self.beta_adaptation == "replay":
            state = adaptation.ReplayState(*map(ops.convert_to_tensor, self._replay))
            trials = adaptation.replay_trials(beta)
            state = adaptation.replay_record(state, acceptance(trials), *seen)
            wanted = ops.convert_to_tensor(self._warm_up)
            ends = (wanted > 0.0) & (state.count >= wanted)
            # Early choices, further and further apart: gradients still grow.
            factor = 2.0 if self.beta_adaptation == "replay" else 0.0
            wanted = ops.where(ends, factor * wanted, wanted)
            if self.beta_adaptation == "replay":
                ends = ops.logical_or(ends, is_epoch_end)
            beta = _chosen_where(ends, adaptation.replay_choose, state, beta)
            self._store(self._replay, state, ends)
            _backend.write([self._warm_up], [wanted])
        if self.beta_adaptation == "paper":
            state = adaptation.PaperState(*map(ops.convert_to_tensor, self._paper))
            trials = adaptation.paper_trials(ops.convert_to_tensor(self._beta))
            state = adaptation.paper_record(state, acceptance(trials), *seen)
            beta = _chosen_where(is_epoch_end, adaptation.paper_choose, state, beta)
            self._store(self._paper, state, is_epoch_end)
        if warm_up or self.beta_adaptation is not None:
            _backend.write([self._beta], [beta])

    def _store(self, variables, state, is_spent):
        empty = [ops.zeros_like(value) for value in state]
        _backend.write(variables, tensors.select(is_spent, empty, list(state)))

    def _current_beta(self):
        return ops.convert_to_numpy(self._beta)

    def get_config(self):
        """The arguments of the constructor."""
        return super().get_config() | {
            "beta": self.beta,
            "beta_adaptation": self.beta_adaptation,
            "noise_temperature": self.proposal.noise_temperature,
            "normalized": self.proposal.normalized,
        }


def _chosen_where(ends, choose, state, beta):
    """The chosen beta where the steps that speak for it end, which is rarely."""

    def chosen():
        return ops.where(ends, choose(state, beta), beta)

    return _backend.cond(ops.any(ends), chosen, lambda: beta)
