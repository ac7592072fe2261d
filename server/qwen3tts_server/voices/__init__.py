"""Voices by all their names, kept where every replica finds them."""
