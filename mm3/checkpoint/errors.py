"""The one error of this package."""


class CheckpointError(ValueError):
    """A file or folder that cannot be loaded: says what it is, what was expected and what to do."""
