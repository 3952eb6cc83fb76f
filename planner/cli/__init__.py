"""The command ``fddps``: one module a command; options are defined once, in ``options``."""
