"""For test_trace.py: a program of Python whose faults come from the marked lines."""
import random
import sys

COUNT = 150_000


class Row:
    __slots__ = ("value",)

    def __init__(self, number):
        self.value = number * 1.5


def build():
    return [Row(number) for number in range(COUNT)]  # BUILDS


def pick(rows, order):
    total = 0.0
    for number in order:
        total += rows[number].value  # FAULTS
    return total


def texts(order, table):
    def look(number):
        return len(table[number])  # FAULTS
    return sum(map(look, order))  # by way of a function in C


random.seed(1)
ORDER = [random.randrange(COUNT) for _ in range(60_000)]
ROWS = build()
print(pick(ROWS, ORDER))
TABLE = {number: f"text {number:060}" for number in range(COUNT)}  # BUILDS
print(texts(ORDER, TABLE))
sys.stdout.flush()
