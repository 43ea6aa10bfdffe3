"""A TCP proxy that damages, delays and cuts what passes through it."""
import random
import select
import socket
import struct
import threading
import time

SOUND_BYTES = 4096  # at the start of each connection nothing is damaged
BLOCK = 1 << 16


def reset(connection):
    """Closing it is then no end in good order."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class CorruptingProxy:
    """Flips a bit in one of `rare` blocks, and resets or delays as many. Each connection has a thread. Resets are passed on."""
    def __init__(self, target, seed, rare=400):
        self.target, self.random, self.rare = target, random.Random(seed), rare
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def close(self):
        self.listener.close()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.relay, args=[client], daemon=True).start()

    def relay(self, client):
        with client:
            try:
                with socket.create_connection(self.target, timeout=10) as server:
                    if not self.pass_bytes(client, server):
                        reset(client)
                        reset(server)
            except OSError:
                reset(client)

    def pass_bytes(self, client, server):
        """Returns whether one side ended the connection in good order."""
        passed = 0
        others = {client: server, server: client}
        while True:
            ready, _, _ = select.select(list(others), [], [])
            for source in ready:
                try:
                    block = bytearray(source.recv(BLOCK))
                    if not block:
                        return True
                    passed += len(block)
                    if passed > SOUND_BYTES and not self.spoil(block):
                        return False
                    others[source].sendall(block)
                except OSError:
                    return False

    def spoil(self, block):
        """Returns whether the connection stays."""
        what = self.random.randrange(self.rare)
        if what == 0:
            block[self.random.randrange(len(block))] ^= 1 << self.random.randrange(8)
        elif what == 1:
            time.sleep(self.random.uniform(0.05, 0.5))
        return what != 2
