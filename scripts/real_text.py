"""Real text: the text files of this machine's packages, in a fixed order."""
import os

ROOTS = ["/usr/share", "/usr/include", "/usr/lib", "/usr/src"]
PROBE = 8192  # bytes that are examined before a whole file is read


def text_of(path):
    """The bytes of a readable regular file of UTF-8 text; None for any other file."""
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


def collect(max_bytes, roots=None):
    """Files of at most `max_bytes` in total, the last one cut after a line. Fewer if the machine has less text."""
    files, left = [], max_bytes
    for path, data in walk(roots):
        if len(data) >= left:
            cut = data.rfind(b"\n", 0, left) + 1
            return files + ([(path, data[:cut])] if cut else [])
        files.append((path, data))
        left -= len(data)
    return files


def lines_of(data):
    """The lines of a file without line ends, numbered as in an editor."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def passages_of(data, min_bytes):
    """Splits a file. Yields (number of the first line, lines); all but the last have at least `min_bytes`."""
    passage, size, first = [], 0, 1
    for number, line in enumerate(lines_of(data), 1):
        passage.append(line)
        size += len(line) + 1
        if size >= min_bytes:
            yield first, b"\n".join(passage)
            passage, size, first = [], 0, number + 1
    if passage:
        yield first, b"\n".join(passage)
