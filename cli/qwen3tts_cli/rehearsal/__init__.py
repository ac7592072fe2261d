"""Parts of ``rehearse``: voices of the callers, progress, summary."""
