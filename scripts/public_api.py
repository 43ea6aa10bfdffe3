#!/usr/bin/env python3
"""Reads the C interface from include/farside/*.h: what make_api_manual.py writes man pages of, and what libfarside.so exports.

A function is described by the comment above it; functions that follow without an empty line share that comment. What
begins with "Internal" is not for programs. The first comment of a header describes the whole header.
"""
import re
from dataclasses import dataclass, field

TOKEN = re.compile(r"""
   (?P<comment>   /\*.*?\*/ )
 | (?P<directive> \#(?:[^\n]*\\\n)*[^\n]* )
 | (?P<type>      (?:struct|enum)\s\w+\s\{.*?^\}; )
 | (?P<body>      (?:static|__attribute__)[^;{]*\{(?:[^\n]*\}$|.*?^\}) )
 | (?P<declared>  (?!extern\ "C")[^\s;{}\#/][^;{}]*; )
 | (?P<gap>       \n[ ]*\n )
 | (?P<other>     \s|extern\ "C"\ \{|\} )""", re.VERBOSE | re.DOTALL | re.MULTILINE)
FUNCTION = re.compile(r"^(?!typedef)[^(]*\b(farside_\w+)\(")
VARIABLE = re.compile(r"^extern [^(]*?\b(farside_\w+)\s*(?:__attribute__|;)")
INTERNAL = "Internal"
NAME = re.compile(r"\b(farside|FARSIDE)_\w+")
HEADING = re.compile(r"---- (.*?) ----", re.DOTALL)
CONDITIONS = re.compile(r"#(include|ifn?def|endif|pragma|if )|#define FARSIDE_\w+_H$")


@dataclass
class Function:
    name: str
    prototype: str


@dataclass
class Group:
    """Functions with one description."""
    section: str
    text: str
    functions: list = field(default_factory=list)

    @property
    def is_internal(self):
        return self.text.startswith(INTERNAL)


@dataclass
class Header:
    name: str                                        # "farside/fiber.h"
    text: str                                        # the first comment
    groups: list = field(default_factory=list)
    variables: list = field(default_factory=list)    # names
    definitions: list = field(default_factory=list)  # types and constants, as they are written, with their comments

    def exported(self):
        """The names that the library has to define."""
        functions = [f.name for group in self.groups for f in group.functions if not f.prototype.startswith("static")]
        return sorted(functions + self.variables)


def text_of(comment):
    """A comment's text without its stars."""
    lines = re.sub(r"^/\*|\*/$", "", comment).split("\n")
    return "\n".join(re.sub(r"^ (\* ?)?", "", line) for line in lines).strip()


def tokens_of(source):
    """(kind, text)"""
    at = 0
    while at < len(source):
        match = TOKEN.match(source, at)
        if not match:
            raise ValueError(f"cannot read {source[at:at + 60]!r}")
        if match.lastgroup != "other":
            yield match.lastgroup, match[0]
        at = match.end()


class Reader:
    """Reads one header, token by token."""

    def __init__(self, name, source):
        first = re.search(r"/\*.*?\*/", source, re.DOTALL)
        self.header = Header(name, text_of(first[0]))
        self.section, self.comment, self.group = "", "", None
        for kind, text in tokens_of(source[first.end():]):
            getattr(self, f"on_{kind}")(text)

    def on_gap(self, _text):
        self.comment, self.group = "", None

    def on_comment(self, text):
        if heading := HEADING.match(text_of(text)):
            self.section = " ".join(heading[1].split())
        else:
            self.comment, self.group = text, None

    def on_type(self, text):
        self.define(text)

    def on_directive(self, text):
        if not CONDITIONS.match(text):
            self.define(text)

    def define(self, text):
        internal = text_of(self.comment).startswith(INTERNAL) or NAME.search(text)[0].endswith("_")
        if not internal:
            self.header.definitions.append(f"{self.comment}\n{text}".strip())
        self.comment, self.group = "", None

    def on_body(self, text):
        self.on_declared(text[:text.index("{")].strip() + ";")

    def on_declared(self, text):
        code = " ".join(re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL).split())
        if match := VARIABLE.match(code):
            self.header.variables.append(match[1])
        elif match := FUNCTION.match(code):
            self.add_function(Function(match[1], code))
        else:
            self.define(text)

    def add_function(self, function):
        if not self.group:
            self.group = Group(self.section, text_of(self.comment))
            self.header.groups.append(self.group)
        self.group.functions.append(function)


def read_header(name, source):
    return Reader(name, source).header


def read_headers(include):
    """The headers of the C interface below the folder include/."""
    paths = sorted((include / "farside").glob("*.h"))
    return [read_header(f"farside/{path.name}", path.read_text(encoding="utf-8")) for path in paths]
