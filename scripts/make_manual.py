#!/usr/bin/env python3
"""Writes man pages and shell completions from what the programs report of themselves.

make_manual.py OUT DESCRIPTION...

A DESCRIPTION is a JSON file that `farside --describe` or a tool, as `farside-plan --describe`, printed; the first one is the main
program's, and further ones replace its command of the same name. OUT receives man1/*.1.gz, bash/farside and zsh/_farside.
The help, the man pages and the completions thus have one source: src/command/command.h.
"""
import gzip
import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

WITH_PROGRAM = ("run", "trace", "plan", "track")  # `farside run [OPTIONS] -- PROGRAM`
FOLDERS, FILES = ("DIR",), ("FILE", "PATH")
COMMON_STATUS = [("0", "success"), ("1", "failure; one line on standard error gives the reason"),
                 ("2", "a mistake on the command line")]
STATUS_OF_A_RUN = [("that of the program", "the program ended by itself"),
                   ("128 + n", "signal n ended the program"),
                   ("126, 127", "the program cannot be executed, or was not found"),
                   *COMMON_STATUS[1:]]
RUNS_A_PROGRAM = ("run", "trace", "track")  # their exit status is that of the program
STATUS = "Exit status:"  # begins the paragraph of a footer that goes to the section EXIT STATUS
VARIABLE = re.compile(r"\s*\[(FARSIDE_\w+)\]$")  # ends the help of an option that a variable sets, too


@dataclass
class Option:
    names: list
    value: str = ""
    help: str = ""
    default: str = ""
    choices: list = field(default_factory=list)
    range: str = ""
    positional: bool = False
    required: bool = False
    list: bool = False
    keys: list = field(default_factory=list)  # of an option that takes KEY=VALUE,...: key, value, help


@dataclass
class Command:
    name: str
    help: str = ""
    footer: str = ""
    options: list = field(default_factory=list)
    commands: list = field(default_factory=list)
    environment: list = field(default_factory=list)

    def find(self, name):
        return next((command for command in self.commands if command.name == name), None)


def command_from(data, keys=()):
    """A command of the description; `keys` are those of the options of all commands."""
    keys = data.get("keys") or keys
    options = [Option(**option, keys=[key for key in keys if key["option"] in option["names"]])
               for option in data.get("options", [])]
    commands = [command_from(command, keys) for command in data.get("commands", [])]
    return Command(data["name"], data.get("help", ""), data.get("footer", ""), options, commands,
                   data.get("environment", []))


def merge(main, other):
    """Puts the description of a program that a command executes in that command's place, as in `farside bench`."""
    name = other.name.split()[-1]
    other.name = name
    main.commands = [other if command.name == name else command for command in main.commands]


# ---- Text of a footer: paragraphs, "Examples:" and "Exit status:" ----

@dataclass
class Footer:
    paragraphs: list  # of text
    examples: list    # (caption or "", lines)
    status: str       # what follows "Exit status:", or ""


def parse_footer(footer):
    """Splits a footer of a help text. Lines that are indented by two spaces are command lines; a line that ends with a
    colon before such lines is their caption."""
    paragraphs, examples, lines = [], [], []

    def end_paragraph():
        if lines:
            paragraphs.append(" ".join(lines))
        lines.clear()

    for line in footer.split("\n"):
        if line.startswith("  "):
            if lines and lines[-1].endswith(":"):
                caption = lines.pop()
                examples.append(("" if caption in ("Examples:", "Example:") else caption, []))
                end_paragraph()
            elif not examples:
                examples.append(("", []))
            examples[-1][1].append(line.strip())
        elif one := re.match(r"Examples?: +(.+)", line):
            end_paragraph()
            examples.append(("", [one.group(1)]))
        elif line.strip():
            lines.append(line.strip())
        else:
            end_paragraph()
    end_paragraph()
    status = next((p.partition(":")[2].strip() for p in paragraphs if p.startswith(STATUS)), "")
    return Footer([p for p in paragraphs if not p.startswith(STATUS)], examples, status)


# ---- Man pages ----

def roff(text):
    """Text with roff's special characters escaped."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"(?m)^([.'])", r"\\&\1", text)


def bold(text):
    return f"\\fB{roff(text)}\\fR"


def italic(text):
    return f"\\fI{roff(text)}\\fR"


def sentence(text):
    """A help text as a sentence: capital letter, full stop."""
    text = text.strip()
    text = text[:1].upper() + text[1:] if re.match(r"[a-z]+[ ,.:]? ", text + " ") else text  # not "json:FILE"
    return text + ("" if not text or text.endswith((".", ":")) else ".")


def summary_of(command):
    """The help's one line without the usage that some end with: "...: farside run [OPTIONS] -- PROGRAM"."""
    return re.sub(r": farside .*$", "", command.help).rstrip(".")


def takes_program(path):
    return len(path) == 2 and path[1] in WITH_PROGRAM


def synopsis(path, command):
    words = [bold(" ".join(path))]
    if any(not option.positional for option in command.options):
        words.append(f"[{italic('OPTIONS')}]")
    for option in command.options:
        if option.positional:
            value = italic(option.value or option.names[0].upper())
            words.append(value if option.required else f"[{value}]")
    if command.commands:
        words.append(f"{italic('COMMAND')} ...")
    if takes_program(path):
        words.append(f"{bold('--')} {italic('PROGRAM')} [{italic('ARGUMENTS')}...]")
    return " ".join(words)


def option_entry(option):
    names = ", ".join(bold(name) for name in option.names)
    value = f" {italic(option.value)}" if option.value else ""
    variable = VARIABLE.search(option.help)
    text = roff(sentence(VARIABLE.sub("", option.help)))
    if option.choices and not all(choice in option.help for choice in option.choices):
        text += " One of " + ", ".join(bold(choice) for choice in option.choices) + "."
    if option.range and option.range not in option.help:
        text += f" {option.range[0].upper()}{option.range[1:]}."
    if option.default:
        text += f" Default: {roff(option.default)}."
    if option.required:
        text += " Required."
    if variable:
        text += f" [{variable.group(1)}]"
    keys = "".join(f".TP\n{bold(key['key'])}{'=' + italic(key['value']) if key['value'] else ''}\n{roff(sentence(key['help']))}\n"
                   for key in option.keys)
    keys = f".RS\n{keys}.RE\n" if keys else ""
    return f".TP\n{italic(option.value) if option.positional else names + value}\n{text}\n{keys}"


def options_section(command, heading):
    entries = "".join(option_entry(option) for option in command.options)
    return f"{heading}\n{entries}" if entries else ""


def examples_section(footer, heading):
    text = ""
    for caption, lines in footer.examples:
        body = "\n".join(roff(line) for line in lines)
        text += (f".PP\n{roff(caption)}\n" if caption else "") + f".PP\n.nf\n.RS 4\n{body}\n.RE\n.fi\n"
    return f"{heading}\n{text}" if text else ""


def paragraphs_of(texts):
    return "".join(f".PP\n{roff(text)}\n" for text in texts)


def nested_sections(path, command):
    """The commands of a command, such as `farside pool status`, on the page of their parent."""
    text = ""
    for nested in command.commands:
        footer = parse_footer(nested.footer)
        text += f".SS {bold(' '.join(path + [nested.name]))}\n{synopsis(path + [nested.name], nested)}\n"
        text += paragraphs_of([sentence(summary_of(nested)), *footer.paragraphs])
        text += "".join(option_entry(option) for option in nested.options) + examples_section(footer, ".PP\nExamples:")
        text += nested_sections(path + [nested.name], nested)
    return text


def commands_section(command):
    entries = "".join(f".TP\n.BR farside\\-{roff(nested.name)} (1)\n{roff(sentence(summary_of(nested)))}\n"
                      for nested in command.commands)
    return f".SH COMMANDS\n{entries}"


def status_section(path, footer):
    if footer.status:
        return f".SH EXIT STATUS\n{roff(sentence(footer.status))}\n"
    rows = STATUS_OF_A_RUN if path[-1] in RUNS_A_PROGRAM else COMMON_STATUS
    return ".SH EXIT STATUS\n" + "".join(f".TP\n{roff(status)}\n{roff(sentence(why))}\n" for status, why in rows)


def environment_section(command, variables):
    """Variables that set options of the command: their names end the help of those options."""
    named = {match.group(1) for option in command.options if (match := VARIABLE.search(option.help))}
    rows = [row for row in variables if row["variable"] in named]
    if not rows:
        return ""
    entries = "".join(f".TP\n{bold(row['variable'])}\nAs {bold(row['flag'])}.\n" for row in rows)
    return f".SH ENVIRONMENT\nOptions on the command line override these variables.\n{entries}"


def see_also(path, main):
    names = [f"farside-{command.name}" for command in main.commands]
    if len(path) > 1:
        names = ["farside"] + [name for name in names if name != "-".join(path)]
    pages = ",\n".join(f".BR {roff(name)} (1)" for name in names)
    return f".SH SEE ALSO\n{pages}\n.PP\nThe guides in /usr/share/doc/farside.\n"


def man_page(path, command, main, version):
    footer = parse_footer(command.footer)
    name = "-".join(path)
    top = len(path) == 1
    text = f'.\\" Generated by scripts/make_manual.py.\n.TH {name.upper()} 1 "" "Farside {version}" "Farside"\n'
    text += f".SH NAME\n{roff(name)} \\- {roff(summary_of(command)[:1].lower() + summary_of(command)[1:])}\n"
    text += f".SH SYNOPSIS\n{synopsis(path, command)}\n"
    text += f".SH DESCRIPTION\n{roff(sentence(summary_of(command)))}\n" + paragraphs_of(footer.paragraphs)
    text += options_section(command, ".SH OPTIONS")
    if command.commands:
        text += commands_section(command) if top else f".SH COMMANDS\n{nested_sections(path, command)}"
    text += examples_section(footer, ".SH EXAMPLES") + status_section(path, footer)
    return text + environment_section(command, main.environment) + see_also(path, main)


def man_pages(main, version):
    """name -> text of every page: one for the program and one for each command."""
    pages = {"farside": man_page(["farside"], main, main, version)}
    for command in main.commands:
        pages[f"farside-{command.name}"] = man_page(["farside", command.name], command, main, version)
    return pages


# ---- Completions ----

def all_commands(command, path=()):
    """(path, command) of a command and all below it; the path leaves the program's name out."""
    yield path, command
    for nested in command.commands:
        yield from all_commands(nested, (*path, nested.name))


def flags_of(command):
    return [name for option in command.options if not option.positional for name in option.names]


def names_file(option):
    return option.value in FILES or any(name.endswith("-file") for name in option.names)


def value_kind(option):
    if option.choices:
        return "words " + " ".join(option.choices)
    if option.value in FOLDERS:
        return "folders"
    return "files" if names_file(option) else "nothing"


BASH = r"""# bash completion for farside. Generated by scripts/make_manual.py.
# Prints the words that may follow "command flag": those of the arrays below.
declare -gA _farside_words=(
@WORDS@
)
declare -gA _farside_values=(
@VALUES@
)

# Completes the value of a flag, of which several may be given with commas between them.
_farside_value() {
  local kind=$1 current=$2 before=
  case $kind in
    words*)
      if [[ $current == *,* ]]; then before=${current%,*},; fi
      mapfile -t COMPREPLY < <(compgen -P "$before" -W "${kind#words }" -- "${current##*,}") ;;
    files) mapfile -t COMPREPLY < <(compgen -f -- "$current"); compopt -o filenames ;;
    folders) mapfile -t COMPREPLY < <(compgen -d -- "$current"); compopt -o filenames ;;
  esac
}

# Completes what follows "--": a program, and its arguments as that program's own completion does.
_farside_program() {
  if declare -F _command_offset >/dev/null; then
    _command_offset "$1"
  elif ((COMP_CWORD == $1)); then
    mapfile -t COMPREPLY < <(compgen -c -- "$2")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$2")
    compopt -o filenames
  fi
}

_farside() {
  local current=${COMP_WORDS[COMP_CWORD]} command= previous= word i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if [[ $word == -- ]]; then
      _farside_program $((i + 1)) "$current"
      return
    fi
    if [[ $word != -* && -v "_farside_words[${command:+$command }$word]" ]]; then command=${command:+$command }$word; fi
  done
  previous=${COMP_WORDS[COMP_CWORD - 1]}
  # Readline splits --flag=value at "=".
  if [[ $current == "=" ]]; then current=; elif [[ $previous == "=" ]]; then previous=${COMP_WORDS[COMP_CWORD - 2]}; fi
  if [[ -v "_farside_values[$command $previous]" ]]; then
    _farside_value "${_farside_values[$command $previous]}" "$current"
    return
  fi
  mapfile -t COMPREPLY < <(compgen -W "${_farside_words[${command:-farside}]}" -- "$current")
}
complete -F _farside farside
"""


def shell_quote(text):
    return "'" + text.replace("'", "'\\''") + "'"


def bash_completion(main):
    words, values = [], []
    for path, command in all_commands(main):
        name = " ".join(path)
        reply = [nested.name for nested in command.commands] + flags_of(command)
        if takes_program(["farside", *path]):
            reply.append("--")
        words.append(f"  [{shell_quote(name or 'farside')}]={shell_quote(' '.join(reply))}")
        for option in command.options:
            if option.value and not option.positional:
                values += [f"  [{shell_quote(name + ' ' + flag)}]={shell_quote(value_kind(option))}"
                           for flag in option.names]
    return BASH.replace("@WORDS@", "\n".join(words)).replace("@VALUES@", "\n".join(values))


def zsh_text(text):
    return re.sub(r"([\\\[\]:'])", lambda match: "'\\''" if match[0] == "'" else "\\" + match[0], text)


def zsh_action(option):
    if option.choices:
        values = " ".join(option.choices)
        return f"_values -s , {shell_quote(option.value or 'value')} {values}" if option.list else f"({values})"
    if option.value in FOLDERS:
        return "_files -/"
    return "_files" if names_file(option) else " "


def zsh_option(option):
    text = zsh_text(VARIABLE.sub("", option.help))
    value = f":{zsh_text(option.value)}:{zsh_action(option)}" if option.value else ""
    value = value.replace("'", "'\\''") if option.choices and option.list else value
    if len(option.names) == 1:
        return [f"'{option.names[0]}[{text}]{value}'"]
    group = " ".join(option.names)
    return [f"'({group}){name}[{text}]{value}'" for name in option.names]


def zsh_function(path):
    return "_farside" + "".join("_" + re.sub(r"\W", "_", name) for name in path)


def zsh_completion_of(path, command):
    specs = [spec for option in command.options if not option.positional for spec in zsh_option(option)]
    if takes_program(["farside", *path]):
        specs.append("'*::program:_normal'")
    for option in command.options:
        if option.positional:
            specs.append(f"'::{zsh_text(option.value)}:{'_pids' if option.value == 'PID' else ' '}'")
    if command.commands:
        specs += ["'1:command:->command'", "'*::argument:->argument'"]
    lines = [f"{zsh_function(path)}() {{", "  local curcontext=$curcontext state line", "  typeset -A opt_args"]
    lines.append("  _arguments -C " + " \\\n    ".join(specs or ["'*: :'"]))
    if command.commands:
        names = " \\\n        ".join(f"'{nested.name}:{zsh_text(summary_of(nested))}'" for nested in command.commands)
        calls = "\n".join(f"        {nested.name}) {zsh_function((*path, nested.name))} ;;" for nested in command.commands)
        lines.append(f"  case $state in\n    command)\n      local -a commands=(\n        {names})\n"
                     f"      _describe command commands ;;\n    argument)\n      case $line[1] in\n{calls}\n"
                     "      esac ;;\n  esac")
    return "\n".join(lines) + "\n}\n"


def zsh_completion(main):
    functions = "\n".join(zsh_completion_of(path, command) for path, command in all_commands(main))
    return f"#compdef farside\n# Generated by scripts/make_manual.py.\n\n{functions}\n_farside \"$@\"\n"


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    data = text.encode("utf-8")
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def main():
    out, *files = map(Path, sys.argv[1:])
    documents = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    farside = command_from(documents[0])
    for document in documents[1:]:
        merge(farside, command_from(document, documents[0].get("keys")))
    for name, text in man_pages(farside, documents[0]["version"]).items():
        write(out / "man1" / f"{name}.1.gz", text)
    write(out / "bash/farside", bash_completion(farside))
    write(out / "zsh/_farside", zsh_completion(farside))


if __name__ == "__main__":
    main()
