"""Networks, distributions over actions, and the layers they are made of."""
