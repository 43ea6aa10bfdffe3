"""Clients that break the protocol, or only hold connections."""
import os
import random
import socket
import struct
import time

MAX_HELD = 300


class Hostile:
    def __init__(self, targets, metrics, seed):
        self.targets, self.metrics, self.random = targets, metrics, random.Random(seed)

    def attack(self, seconds):
        ends, held = time.monotonic() + seconds, []
        while time.monotonic() < ends:
            attack = self.random.choice([self.noise, self.long_header, self.silence, self.slow_metrics, self.bad_metrics])
            try:
                held += attack()
            except OSError:
                time.sleep(0.1)  # a link is cut, or the server has had enough
            while len(held) > MAX_HELD:
                held.pop(0).close()
        for connection in held:
            connection.close()

    def connect(self, target):
        return socket.create_connection(target, timeout=2)

    def noise(self):
        connection = self.connect(self.random.choice(self.targets))
        connection.sendall(os.urandom(self.random.randrange(1, 5000)))
        return [connection]

    def long_header(self):
        """A greeting's header (src/wire/protocol.h) that announces the largest payload, and a part of it."""
        connection = self.connect(self.random.choice(self.targets))
        connection.sendall(struct.pack("<IBBHQII", 0x46535246, 1, 1, 0, 1, (1 << 20) - 1, 0) + bytes(100))
        return [connection]

    def silence(self):
        return [self.connect(self.random.choice(self.targets))]

    def slow_metrics(self):
        connection = self.connect(self.metrics)
        connection.sendall(b"GET /met")
        return [connection]

    def bad_metrics(self):
        connection = self.connect(self.metrics)
        connection.sendall(os.urandom(200) + b"\r\n\r\n")
        return [connection]
