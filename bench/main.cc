#include "bench/bench.h"

int main(int argc, char** argv) { return farside::bench::run_bench(argc, argv); }
