"""The stream processors: the only code that runs Faust."""
