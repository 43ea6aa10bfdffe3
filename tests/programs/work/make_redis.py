"""make_redis.py FILE: commands for redis-cli --pipe."""
import sys

with open(sys.argv[1], "w", encoding="ascii") as file:
    for n in range(250_000):
        file.write(f"SET key:{n} {'v' * (n % 150)}{n * 7919 % 1000003}\r\n")
        if n % 8 == 0:
            file.write(f"HSET hash:{n % 1000} field{n} {n}\r\n")
            file.write(f"RPUSH list:{n % 100} item{n}\r\nZADD set {n % 997} m{n}\r\n")
