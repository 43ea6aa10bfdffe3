"""Arguments of the program `farside`."""


def flags(options: dict[str, str | None]) -> list[str]:
    """The words of the options that have a value."""
    return [word for flag, value in options.items() if value is not None for word in (flag, value)]
