"""Farside for Python: runs programs with most of their memory on another machine.

`farside.prefix` is the folder of the installation that the wheel holds, as `make install` makes it: bin, include, lib
with pkgconfig and cmake."""
from ._installation import prefix

__all__ = ["prefix"]
