"""A MindRoot plugin that stands in for a language model: it says back what you write."""

from . import mod as mod
