"""Threefry-2x32-20, a random function of a counter: Salmon et al. (2011), section 3.3.

JAX and TensorFlow share this code. Their tensors of unsigned integers have the same
`+`, the same `^` and the same wrap-around at 2^32. Only the shifts have other names.
"""

_ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
_PARITY = 0x1BD11BDA


def threefry(key, counter, word, rotate_left):
    """Return the two words for a key of two words and a counter of two words.

    Args:
        key: two tensors of dtype uint32.
        counter: two tensors of dtype uint32.
        word: function that makes a uint32 tensor from a Python integer.
        rotate_left: function of a uint32 tensor and a number of bits, a Python
            integer. It returns the rotated tensor.
    """
    keys = *key, key[0] ^ key[1] ^ word(_PARITY)
    x, y = counter[0] + keys[0], counter[1] + keys[1]
    for group in range(5):
        for bits in _ROTATIONS[group % 2]:
            x = x + y
            y = x ^ rotate_left(y, bits)
        x = x + keys[(group + 1) % 3]
        y = y + keys[(group + 2) % 3] + word(group + 1)
    return x, y
