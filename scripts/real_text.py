"""Real text: the text files that this machine's packages brought, in an order that does not change. No generated noise."""
import os

ROOTS = ["/usr/share", "/usr/include", "/usr/lib", "/usr/src"]
PROBE = 8192  # bytes looked at before a whole file is read


def text_of(path):
    """A file's bytes if it is a readable regular file of UTF-8 text, else None."""
    if os.path.islink(path) or not os.path.isfile(path):
        return None
    try:
        with open(path, "rb") as file:
            data = file.read(PROBE)
            if b"\0" in data:
                return None
            data += file.read()
            data.decode()
    except (OSError, UnicodeDecodeError):
        return None
    return None if b"\0" in data or not data else data


def walk(roots=None):
    """Yields (path, bytes) of every text file below the roots."""
    for root in roots or ROOTS:
        for folder, folders, names in os.walk(root):
            folders.sort()
            for name in sorted(names):
                path = os.path.join(folder, name)
                data = text_of(path)
                if data:
                    yield path, data


def collect(most_bytes, roots=None):
    """Files up to a number of bytes in all, the last one cut after a line. Less if the machine has less."""
    files, left = [], most_bytes
    for path, data in walk(roots):
        if len(data) >= left:
            cut = data.rfind(b"\n", 0, left) + 1
            return files + ([(path, data[:cut])] if cut else [])
        files.append((path, data))
        left -= len(data)
    return files


def lines_of(data):
    """The lines of a file without their ends, as an editor counts them."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def passages_of(data, least_bytes):
    """Yields (number of the first line, lines) until a file is used up: as many lines as reach a number of bytes."""
    passage, size, first = [], 0, 1
    for number, line in enumerate(lines_of(data), 1):
        passage.append(line)
        size += len(line) + 1
        if size >= least_bytes:
            yield first, b"\n".join(passage)
            passage, size, first = [], 0, number + 1
    if passage:
        yield first, b"\n".join(passage)
