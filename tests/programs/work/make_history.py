"""make_history.py COMMITS FILE: input of git fast-import with a history of files that change a little each time."""
import random
import sys

chance = random.Random(2)
files = {f"folder{n % 7}/file{n}.txt": [f"line {i} of {n} {chance.random()}" for i in range(2500)] for n in range(60)}


def data(text):
    return f"data {len(text)}\n{text}\n"


with open(sys.argv[2], "w", encoding="ascii") as file:
    for commit in range(int(sys.argv[1])):
        file.write(f"commit refs/heads/main\ncommitter A <a@example.org> {1700000000 + commit} +0000\n")
        file.write(data(f"commit {commit}"))
        for name in files if commit == 0 else chance.sample(sorted(files), 6):
            lines = files[name]
            for _ in range(20):
                lines[chance.randrange(len(lines))] = f"changed in {commit}: {chance.random()}"
            file.write(f"M 100644 inline {name}\n" + data("\n".join(lines) + "\n"))
