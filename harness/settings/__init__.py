"""The settings of `ssr`: one frozen dataclass for each command, made of sections that commands share."""
