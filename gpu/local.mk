# Device pools.
