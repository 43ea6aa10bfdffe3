"""Stores and reads back 300,000 values over a socket in this folder, with memcached's text protocol."""
import hashlib
import socket
import subprocess
import time

COUNT, BATCH = 300_000, 1000
server = subprocess.Popen(["memcached", "-s", "socket", "-m", "400", "-t", "2", "-u", "root"])
connection = socket.socket(socket.AF_UNIX)
for _ in range(600):
    try:
        connection.connect("socket")
        break
    except OSError:
        time.sleep(0.05)
stream = connection.makefile("rwb")


def value(number):
    return b"%d " % (number * 7919 % 1000003) * (10 + number % 40)


for first in range(0, COUNT, BATCH):
    for number in range(first, first + BATCH):
        data = value(number)
        stream.write(b"set key%d 0 0 %d noreply\r\n%s\r\n" % (number, len(data), data))
stream.write(b"version\r\n")
stream.flush()
stream.readline()
digest, wrong = hashlib.sha256(), 0
for first in range(0, COUNT, 100):
    stream.write(b"get " + b" ".join(b"key%d" % number for number in range(first, first + 100)) + b"\r\n")
    stream.flush()
    for number in range(first, first + 100):
        size = int(stream.readline().split()[3])
        data = stream.read(size + 2)[:-2]
        wrong += data != value(number)
        digest.update(data)
    stream.readline()
print(digest.hexdigest(), wrong)
server.terminate()
print(server.wait())
