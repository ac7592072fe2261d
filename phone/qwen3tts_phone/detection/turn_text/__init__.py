"""Reading of a turn's text so far, by tables of words a language."""
