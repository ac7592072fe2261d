"""Voices by all their names, in a store shared by all replicas."""
