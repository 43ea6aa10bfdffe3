"""Keeps a large dict of real text while it starts subprocesses, forks and runs threads. Prints digests."""
import hashlib
import os
import re
import subprocess
import sys
import threading


def digest(data):
    state = hashlib.sha256()
    for key in sorted(data):
        state.update(f"{key}={data[key]}\n".encode())
    return state.hexdigest()


def in_child(work):
    """Runs work() in a forked child. Returns its output and its wait status."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        with os.fdopen(writer, "w") as pipe:
            pipe.write(work())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer = pipe.read()
    return answer, os.waitpid(child, 0)[1]


def change(data):
    for key in list(data)[::3]:
        data[key] = data[key][::-1]
    for key in list(data)[::5]:
        del data[key]
    return digest(data)


def main():
    words, lines = {}, {}
    with open(sys.argv[1], encoding="utf8") as file:
        for number, line in enumerate(file):
            lines[number] = line.rstrip("\n")
            for word in re.findall(r"\w+", line):
                words.setdefault(word, []).append(number)
    print(len(lines), len(words), digest(lines))
    for size in (10, 1_000_000):
        answer = subprocess.run(["tr", "a-z", "A-Z"], input="".join(lines.values())[:size], capture_output=True,
                                text=True, check=True, encoding="utf8")
        print(size, hashlib.sha256(answer.stdout.encode()).hexdigest())
    print(subprocess.run("echo $WORD; exit 5", shell=True, env={"WORD": "far"}, capture_output=True, check=False))
    for _ in range(3):
        print("child", *in_child(lambda: change(lines)), "parent", digest(lines))
    found = [None] * 4

    def count(part):
        found[part] = sum(len(places) for word, places in words.items() if len(word) % 4 == part)

    threads = [threading.Thread(target=count, args=[part]) for part in range(4)]
    for thread in threads:
        thread.start()
    print("child among threads", *in_child(lambda: digest(words)))
    for thread in threads:
        thread.join()
    print(found, change(lines), max(words, key=lambda word: (len(words[word]), word)))


if __name__ == "__main__":
    main()
