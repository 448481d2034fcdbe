"""How long a waiter spins: what plans are priced with and what the runtime does."""

#: A wait that is expected to be longer blocks, and a spinning waiter blocks after so long.
SPIN_LIMIT_S = 50e-6
