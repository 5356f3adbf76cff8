"""Mini-batches drawn without replacement, each index computed on its own.

A batch of m out of n examples without replacement is the first m values of a random
permutation of 0..n-1. Drawing it by a shuffle costs n per chain and step; here the j-th
value of a keyed permutation is computed from j alone, so that thousands of chains draw
batches of their own at a cost of m each.

The permutation is a Feistel network on Z_a x Z_b, with a b >= n as near as possible:
with j = L b + R and a hash h,

    L <- (L + h(R, key_1) mod a) mod a
    R <- (R + h(L, key_2) mod b) mod b        and so on, r times in all

Each line can be undone, so the whole is one-to-one on 0..ab-1. A value outside 0..n-1
is sent through the network again until it falls inside, which keeps it one-to-one on
0..n-1 ("cycle walking"); where n factors well, ab = n and nothing has to walk.

With replacement, each j has a permutation of its own, keys and all, and the value of
that at 0 is taken.

Sources: Luby and Rackoff (1988), "How to construct pseudorandom permutations from
pseudorandom functions"; Black and Rogaway (2002), "Ciphers with arbitrary finite
domains", section 4 (cycle walking) and 5 (a x b networks).

| source  | name         | shape       | unit     |
|---------|--------------|-------------|----------|
| n       | `train_size` | int         | examples |
| m       | `batch_size` | int         | examples |
| key_r   | `uniforms`   | (r, K)      | 1        |
| r       | `num_rounds` | int         | 1        |
| a, b    | `rows`, `columns` | int    | 1        |
"""

import math

from keras import ops

LARGEST_TRAIN_SIZE = 2**30

_MULTIPLIERS = (-2048144789, -1028477387)  # murmur3's, as signed integers
_GOLDEN = -1640531527  # 2^32 over the golden ratio, as a signed integer


def draw_batches(uniforms, train_size, batch_size, replacement=False):
    """Indices of one mini-batch for each chain, int32, shape (K, m)."""
    rows, columns = grid(train_size)
    rounds = num_rounds(train_size)
    keys = ops.cast(uniforms * 2.0**24, "int32")
    keys = [ops.expand_dims(key, 1) for key in ops.unstack(keys, rounds)]
    counter = ops.expand_dims(ops.arange(batch_size, dtype="int32"), 0)
    first = counter + 0 * keys[0]
    if replacement:
        keys = [_hash(key + counter * _GOLDEN) for key in keys]
        first = 0 * first

    def permute(index):
        left, right = index // columns, index % columns
        for pair in range(0, rounds, 2):
            left = _shift(left, _hash(right + keys[pair]), rows)
            right = _shift(right, _hash(left + keys[pair + 1]), columns)
        return left * columns + right

    index = permute(first)
    if rows * columns == train_size:
        return index
    (index,) = ops.while_loop(
        lambda index: ops.any(index >= train_size),
        lambda index: (ops.where(index >= train_size, permute(index), index),),
        (index,),
    )
    return index


def num_rounds(train_size):
    """Rounds of the network, an even number: a tiny grid mixes slowly.

    With 8 rounds the pairs of a batch are uniform (chi-squared tests on 400,000 pairs)
    from n = 20 on, with 16 from n = 3 on.
    """
    return 24 if train_size < 64 else 8


def grid(train_size):
    """The network's sides (a, b): near the square root, with a b - n least."""
    root = math.isqrt(max(train_size - 1, 0)) + 1
    # One row would leave shifts alone.
    sides = range(max(root // 2, min(root, 2)), root + 1)
    return min(
        ((a, -(-train_size // a)) for a in sides),
        key=lambda side: (side[0] * side[1], -side[0]),
    )


def _shift(value, bits, size):
    """(value + a number below `size` made of 16 of the bits) mod size."""
    step = _unsigned_shift(_unsigned_shift(bits, 16) * size, 16)
    moved = value + step
    return ops.where(moved >= size, moved - size, moved)


def _hash(value):
    """Mixes the bits of int32 values; products wrap around."""
    value = ops.bitwise_xor(value, _unsigned_shift(value, 16))
    value = value * _MULTIPLIERS[0]
    value = ops.bitwise_xor(value, _unsigned_shift(value, 13))
    value = value * _MULTIPLIERS[1]
    return ops.bitwise_xor(value, _unsigned_shift(value, 16))


def _unsigned_shift(value, bits):
    mask = (1 << (32 - bits)) - 1
    return ops.bitwise_and(ops.right_shift(value, bits), mask)
