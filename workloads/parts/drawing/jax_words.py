"""Philox4x64-10 in JAX: the words of `appliance.generator.philox`, for programs that stay in JAX.

Computed with 64-bit types switched on for this computation alone, which JAX otherwise cuts to 32
bits; the words come as pairs of 32 bits, the lower first, which every program can hold.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from appliance.generator.philox import MULTIPLIERS, ROUNDS, WEYL, Key

LOW = 2**32 - 1


def words(key: Key, first_block: int, num_blocks: int) -> jax.Array:
    """Words (num_blocks, 4, 2) of a stream from a block on, uint32, on JAX's default device."""
    with jax.enable_x64(True):  # noqa: FBT003 - JAX's own
        keys = jnp.array(key, dtype=jnp.uint64)
        first = jnp.array(first_block, dtype=jnp.uint64)
        made: jax.Array = _words(keys, first, num_blocks)
        return made


def _make(keys: jax.Array, first: jax.Array, num_blocks: int) -> jax.Array:
    zero = first + jnp.arange(num_blocks, dtype=jnp.uint64)
    one = two = three = jnp.zeros_like(zero)
    for number in range(ROUNDS):
        high_zero, low_zero = _product(MULTIPLIERS[0], zero)
        high_two, low_two = _product(MULTIPLIERS[1], two)
        key, other = (
            keys[place] + jnp.uint64(number * step % 2**64) for place, step in enumerate(WEYL)
        )
        zero, two = high_two ^ one ^ key, high_zero ^ three ^ other
        one, three = low_two, low_zero
    made = jnp.stack([zero, one, two, three], axis=1)
    return jax.lax.bitcast_convert_type(made, jnp.uint32)


_words = jax.jit(_make, static_argnums=2)


def _product(factor: int, numbers: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Upper and lower 64 bits of the products."""
    low_factor, high_factor = jnp.uint64(factor & LOW), jnp.uint64(factor >> 32)
    low, high = numbers & jnp.uint64(LOW), numbers >> 32
    middle = high * low_factor + (low * low_factor >> 32)
    other = low * high_factor + (middle & jnp.uint64(LOW))
    return high * high_factor + (middle >> 32) + (other >> 32), numbers * jnp.uint64(factor)
