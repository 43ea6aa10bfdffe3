"""Writes metrics in the OpenMetrics format to the file that is named: 1000 series, 600 values each."""
import sys

with open(sys.argv[1], "w", encoding="ascii") as file:
    file.write("# HELP load Load.\n# TYPE load gauge\n")
    for series in range(1000):
        for step in range(600):
            file.write(f'load{{host="host{series}",zone="{series % 7}"}} {(series * 7919 + step * 31) % 1009} {1600000000 + step * 15}\n')
    file.write("# EOF\n")
