"""make_text.py MIB FILE: a file of words, the same each time."""
import random
import sys

chance = random.Random(1)
words = ["".join(chance.choices("etaoinshrdlucmfwyp", k=chance.randint(2, 11))) for _ in range(20_000)]
with open(sys.argv[2], "w", encoding="ascii") as file:
    while file.tell() < int(sys.argv[1]) << 20:
        file.write("".join(f"{' '.join(chance.choices(words, k=9))} {chance.randrange(10**6)}\n" for _ in range(5000)))
